package io.github.sibyltrace.agent.bridge;

import java.util.Arrays;

/**
 * The methods that instrumented code calls. The bootstrap class loader loads this package, so that classes of all other
 * loaders see it; it depends on the JDK only. No method ever throws: a failing probe must not change the application.
 */
public final class Bridge {
  // Instrumented code refers to probes by index. A plain read suffices: code that refers to a new index is compiled
  // after the index was set, and a stale null only loses a hit.
  private static Probe[] probes = new Probe[256];
  private static int used;

  private Bridge() {}

  /** Adds a probe and returns its index, which is never used again for another one. */
  public static synchronized int add(Probe probe) {
    if (used == probes.length) {
      probes = Arrays.copyOf(probes, 2 * used);
    }
    probes[used] = probe;
    return used++;
  }

  /** Replaces the probe with the given index; null: none. */
  public static synchronized void set(int index, Probe probe) {
    probes[index] = probe;
  }

  public static Object enter(int index) {
    try {
      Probe p = probes[index];
      return p == null ? null : p.enter();
    } catch (Throwable t) {
      return null;
    }
  }

  public static void argument(Object activation, int index, Object value) {
    if (activation != null) {
      try {
        ((Activation) activation).argument(index, value);
      } catch (Throwable t) {
        // the value is lost
      }
    }
  }

  public static void result(Object value, Object activation) {
    if (activation != null) {
      try {
        ((Activation) activation).result(value);
      } catch (Throwable t) {
        // the value is lost
      }
    }
  }

  public static void exit(Object activation, Throwable thrown) {
    if (activation != null) {
      try {
        ((Activation) activation).exit(thrown);
      } catch (Throwable t) {
        // the hit is lost
      }
    }
  }

  public static void constructed(Object object, int index) {
    try {
      Probe p = probes[index];
      if (p != null) {
        p.constructed(object);
      }
    } catch (Throwable t) {
      // the object is not counted
    }
  }

  /** Replaces the sampler of an OpenTelemetry SDK, as {@link SamplerWrapper} decides. */
  public static Object sampler(Object original) {
    try {
      SamplerWrapper w = samplers;
      return w == null ? original : w.wrap(original);
    } catch (Throwable t) {
      return original;
    }
  }

  /** Replaces a span of an OpenTelemetry SDK before it starts, as {@link SpanGate} decides; null: it starts. */
  public static Object span(Object builder, Object parent, String name, Object kind, Object scope) {
    try {
      SpanGate g = gate;
      return g == null ? null : g.replace(builder, parent, name, kind, scope);
    } catch (Throwable t) {
      return null;
    }
  }

  /** Replaces spans that are not enabled. */
  public interface SpanGate {
    /**
     * Returns the span in place of the one that is about to start, null if it may start.
     *
     * @param builder the builder of the span
     * @param parent its context; null: the current one
     * @param kind its kind
     * @param scope its instrumentation scope
     */
    Object replace(Object builder, Object parent, String name, Object kind, Object scope);
  }

  private static volatile SpanGate gate;

  public static void setSpanGate(SpanGate g) {
    gate = g;
  }

  /** Handles the context of OpenTelemetry that becomes the current one of this thread; null: none. */
  public static void context(Object context) {
    try {
      ContextListener l = contexts;
      if (l != null) {
        l.changed(context);
      }
    } catch (Throwable t) {
      // waits of the thread have no span
    }
  }

  /** Hears of changes of contexts. */
  public interface ContextListener {
    /** Handles the context that is the current one of this thread from now on; null: none. */
    void changed(Object context);
  }

  private static volatile ContextListener contexts;

  public static void setContextListener(ContextListener l) {
    contexts = l;
  }

  /** Wraps samplers. */
  public interface SamplerWrapper {
    /** Returns the sampler to use in place of the given one; an instance of the same interface. */
    Object wrap(Object sampler);
  }

  private static volatile SamplerWrapper samplers;

  public static void setSamplerWrapper(SamplerWrapper wrapper) {
    samplers = wrapper;
  }
}
