package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.bridge.Bridge;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;

/** Switches the tracepoints of a method. It outlives their code in the classes, so that switching uses no memory. */
final class MethodSwitch {
  private volatile Enabled enabled; // null: nothing
  private final Map<Spans, Integer> probes = Collections.synchronizedMap(new WeakHashMap<>()); // indices in the bridge

  /** The tracepoints that are enabled. */
  static final class Enabled {
    final Point span; // null: only variables are enabled
    final List<Point> variables;

    private Enabled(Point span, List<Point> variables) {
      this.span = span;
      this.variables = variables;
    }
  }

  /** Returns what is enabled; null: nothing. */
  Enabled enabled() {
    return enabled;
  }

  /** Enables the given tracepoints, and no others. */
  void set(Point span, List<Point> variables) {
    enabled = span == null && variables.isEmpty() ? null : new Enabled(span, variables);
  }

  /** Returns the index of the probe for classes that use the given spans. */
  int probe(Spans spans) {
    return probes.computeIfAbsent(spans, s -> Bridge.add(new MethodProbe(this, s)));
  }
}
