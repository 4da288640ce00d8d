package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.jar.JarFile;

/** Finds the OpenTelemetry that a class sees: that of OpenTelemetry's Java agent, or that of the application. */
public final class Otel implements SpansFactory {
  private static final String API = "io.opentelemetry.api.GlobalOpenTelemetry";
  private static final int MAX_SAMPLERS = 64; // a process has one or two

  private final JarFile jar;
  private final Log log;
  private final Map<ClassLoader, WeakReference<Spans>> byApi = new WeakHashMap<>(); // guarded by itself
  private final Spans without; // for classes that see no OpenTelemetry
  private Spans ofAgent; // guarded by byApi; null: not made yet

  /**
   * Finds OpenTelemetry.
   *
   * @param jar the agent's own jar, which contains the classes that use OpenTelemetry
   * @param without makes the spans of classes that see no OpenTelemetry
   */
  public Otel(JarFile jar, Spans without, Log log) {
    this.without = without;
    this.jar = jar;
    this.log = log;
  }

  @Override
  public Spans spansFor(ClassLoader loader) {
    synchronized (byApi) {
      try {
        if (find(OtelLoader.AGENT_PREFIX + API, null) != null) {
          ofAgent = ofAgent != null ? ofAgent : spans(null, true);
          return ofAgent;
        }
        Class<?> api = find(API, loader);
        if (api == null) {
          return without;
        }
        WeakReference<Spans> known = byApi.get(api.getClassLoader());
        Spans spans = known == null ? null : known.get();
        if (spans == null) {
          spans = spans(api.getClassLoader(), false);
          byApi.put(api.getClassLoader(), new WeakReference<>(spans)); // weak: its class refers to the loader
        }
        return spans;
      } catch (ReflectiveOperationException | LinkageError e) {
        log.error("cannot use OpenTelemetry: its version is not supported", e);
        return without;
      }
    }
  }

  private static Class<?> find(String name, ClassLoader loader) {
    try {
      return Class.forName(name, false, loader);
    } catch (ClassNotFoundException | LinkageError e) {
      return null;
    }
  }

  private Spans spans(ClassLoader api, boolean ofAgent) throws ReflectiveOperationException {
    return (Spans) new OtelLoader(api, jar, ofAgent).loadClass(OtelLoader.PACKAGE + "OtelSpans").getConstructor().newInstance();
  }

  @Override
  public Bridge.SamplerWrapper samplers(Registry registry) {
    return new Samplers(registry);
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
        boolean ofAgent = sdk.getClass().getName().startsWith("io.opentelemetry.javaagent.");
        return new OtelLoader(sdk, jar, ofAgent)
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
