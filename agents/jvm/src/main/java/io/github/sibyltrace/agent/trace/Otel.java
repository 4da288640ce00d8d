package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.stacks.Served;
import io.github.sibyltrace.agent.stacks.StackSampler;
import io.github.sibyltrace.agent.threads.ThreadSlot;
import io.github.sibyltrace.agent.threads.ThreadTable;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** Finds the OpenTelemetry that a class sees: that of OpenTelemetry's Java agent, or that of the application. */
public final class Otel implements SpansFactory {
  private static final String API = "io.opentelemetry.api.GlobalOpenTelemetry";
  private static final int MAX_SAMPLERS = 64; // a process has one or two

  private final Log log;
  private final Spans without; // for classes that see no OpenTelemetry

  /** The ways to make spans by the class of the API, which keeps them alive: they refer to its loader. */
  private final ClassValue<Spans> byApi =
      new ClassValue<>() {
        @Override
        protected Spans computeValue(Class<?> api) {
          return make(api);
        }
      };

  /**
   * Finds OpenTelemetry.
   *
   * @param without makes the spans of classes that see no OpenTelemetry
   */
  public Otel(Spans without, Log log) {
    this.without = without;
    this.log = log;
  }

  @Override
  public Spans spansFor(ClassLoader loader) {
    Class<?> ofAgent = find(OtelLoader.AGENT_PREFIX + API, null);
    Class<?> api = ofAgent != null ? ofAgent : find(API, loader);
    return api == null ? without : byApi.get(api);
  }

  private static Class<?> find(String name, ClassLoader loader) {
    try {
      return Class.forName(name, false, loader);
    } catch (ClassNotFoundException | LinkageError e) {
      return null;
    }
  }

  private Spans make(Class<?> api) {
    try {
      OtelLoader l = new OtelLoader(api.getClassLoader(), api.getName().startsWith(OtelLoader.AGENT_PREFIX));
      return (Spans) l.loadClass(OtelLoader.PACKAGE + "OtelSpans").getConstructor().newInstance();
    } catch (ReflectiveOperationException | LinkageError e) {
      log.error("cannot use OpenTelemetry: its version is not supported", e);
      return without;
    }
  }

  @Override
  public Bridge.SamplerWrapper samplers(Registry registry) {
    return new Samplers(registry);
  }

  @Override
  public Bridge.SpanGate gate(Registry registry) {
    ClassValue<Bridge.SpanGate> gates = // by SDK
        new ClassValue<>() {
          @Override
          protected Bridge.SpanGate computeValue(Class<?> builder) {
            return makeGate(builder.getClassLoader(), registry);
          }
        };
    return (builder, parent, name, kind, scope) -> gates.get(builder.getClass()).replace(builder, parent, name, kind, scope);
  }

  private Bridge.SpanGate makeGate(ClassLoader sdk, Registry registry) {
    try {
      return (Bridge.SpanGate) besideSdk(sdk).loadClass(OtelLoader.PACKAGE + "SpanGate").getConstructor(Registry.class).newInstance(registry);
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      log.error("spans of OpenTelemetry are no tracepoints: its version is not supported", e);
      return (builder, parent, name, kind, scope) -> null;
    }
  }

  /**
   * Returns the listener that tells the span of each thread, for the contexts of any OpenTelemetry.
   *
   * @param table for the kernel agent; null: none
   * @param sampler of stacks; null: none
   */
  public Bridge.ContextListener contexts(ThreadTable table, StackSampler sampler) {
    ClassValue<Bridge.ContextListener> listeners = // by class of the context
        new ClassValue<>() {
          @Override
          protected Bridge.ContextListener computeValue(Class<?> context) {
            return makeListener(context, table, sampler);
          }
        };
    return context -> {
      if (context == null) {
        clear(table, sampler);
      } else {
        listeners.get(context.getClass()).changed(context);
      }
    };
  }

  private static void clear(ThreadTable table, StackSampler sampler) {
    ThreadSlot slot = table == null ? null : table.current();
    if (slot != null) {
      slot.clear();
    }
    if (sampler != null && sampler.isOn()) {
      sampler.rests();
    }
  }

  private Bridge.ContextListener makeListener(Class<?> context, ThreadTable table, StackSampler sampler) {
    try {
      OtelLoader l = new OtelLoader(context.getClassLoader(), context.getName().startsWith(OtelLoader.AGENT_PREFIX));
      return (Bridge.ContextListener)
          l.loadClass(OtelLoader.PACKAGE + "OtelContexts").getConstructor(ThreadTable.class, StackSampler.class, Function.class).newInstance(table, sampler, requests());
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      log.error("waits and stacks have no spans: cannot use OpenTelemetry", e);
      return other -> clear(table, sampler);
    }
  }

  /** Returns a function that returns the request that begins with a span of any OpenTelemetry SDK, null if none does. */
  private Function<Object, Served> requests() {
    ClassValue<Function<Object, Served>> bySpan = // by class of the span
        new ClassValue<>() {
          @Override
          protected Function<Object, Served> computeValue(Class<?> span) {
            return makeRequests(span);
          }
        };
    return span -> bySpan.get(span.getClass()).apply(span);
  }

  @SuppressWarnings("unchecked") // OtelServed is one
  private Function<Object, Served> makeRequests(Class<?> span) {
    ClassLoader sdk = span.getClassLoader();
    Class<?> readable = sdk == null ? null : find("io.opentelemetry.sdk.trace.ReadableSpan", sdk);
    if (readable == null || !readable.isAssignableFrom(span)) {
      return other -> null; // a span that is not sampled, or of no SDK
    }
    try {
      return (Function<Object, Served>) besideSdk(sdk).loadClass(OtelLoader.PACKAGE + "OtelServed").getConstructor().newInstance();
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      log.error("Sibyl gets no stacks: cannot read the spans of OpenTelemetry", e);
      return other -> null;
    }
  }

  /** Returns a loader of classes that use an SDK. */
  private static OtelLoader besideSdk(ClassLoader sdk) {
    return new OtelLoader(sdk, sdk.getClass().getName().startsWith("io.opentelemetry.javaagent."));
  }

  /** Keeps the wrapper of each sampler. */
  private final class Samplers implements Bridge.SamplerWrapper {
    private final Registry registry;
    private volatile List<Object[]> wrapped = List.of(); // pairs of a sampler and its wrapper

    Samplers(Registry registry) {
      this.registry = registry;
    }

    @Override
    public Object wrap(Object sampler) {
      for (Object[] pair : wrapped) {
        if (pair[0] == sampler) {
          return pair[1];
        }
      }
      return add(sampler);
    }

    private synchronized Object add(Object sampler) {
      if (wrapped.size() >= MAX_SAMPLERS) {
        return sampler;
      }
      Object wrapper = make(sampler);
      List<Object[]> next = new ArrayList<>(wrapped);
      next.add(new Object[] {sampler, wrapper});
      wrapped = next;
      return wrapper;
    }

    private Object make(Object sampler) {
      try {
        ClassLoader sdk = Class.forName("io.opentelemetry.sdk.trace.samplers.Sampler", false, sampler.getClass().getClassLoader()).getClassLoader();
        return besideSdk(sdk)
            .loadClass(OtelLoader.PACKAGE + "DecidingSampler")
            .getConstructor(Object.class, Registry.class)
            .newInstance(sampler, registry);
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        log.error("requests get no arms: cannot wrap the sampler of OpenTelemetry", e);
        return sampler;
      }
    }
  }
}
