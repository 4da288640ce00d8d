package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Probe;
import java.lang.ref.WeakReference;
import java.util.List;

/** Handles the executions of a method: its span, and its variables. */
final class MethodProbe extends Probe {
  private final MethodSwitch method;
  private final WeakReference<Spans> spans; // of an application, which may be undeployed

  MethodProbe(MethodSwitch method, Spans spans) {
    this.method = method;
    this.spans = new WeakReference<>(spans);
  }

  @Override
  public Activation enter() {
    MethodSwitch.Enabled e = method.enabled();
    Spans s = e == null ? null : spans.get();
    if (s == null) {
      return null;
    }
    Activation span = e.span == null ? null : s.start(e.span);
    if (e.variables.isEmpty()) {
      return span;
    }
    Capture c = s.capture(e.variables.get(0).registry());
    return c == null ? span : new Capturing(span, c, e.variables);
  }

  /** Captures the variables of an execution, which may have a span of its own. */
  private static final class Capturing extends Activation {
    private final Activation span; // null: none
    private final Capture capture;
    private final List<Point> variables;

    Capturing(Activation span, Capture capture, List<Point> variables) {
      this.span = span;
      this.capture = capture;
      this.variables = variables;
    }

    @Override
    public void argument(int index, Object value) {
      take(index, value);
    }

    @Override
    public void result(Object value) {
      take(Variable.RETURNED, value);
    }

    @Override
    public void exit(Throwable thrown) {
      try {
        if (thrown != null) {
          take(Variable.THROWN, thrown);
        }
      } finally {
        if (span != null) {
          span.exit(thrown);
        }
      }
    }

    private void take(int index, Object of) {
      for (Point p : variables) {
        if (p.variable.index == index) {
          Object value = p.variable.value(of);
          if (value != null) {
            take(p, value);
          }
        }
      }
    }

    private void take(Point p, Object value) {
      if (p.hit(capture.request, capture.recording)) {
        long begin = p.measures() ? System.nanoTime() : 0;
        capture.set(p.tracepoint.operation, value);
        if (begin != 0) {
          p.measured(System.nanoTime() - begin);
        }
      }
    }
  }
}
