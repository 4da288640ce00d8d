package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.bridge.Activation;

/** Makes spans, with the OpenTelemetry API that the instrumented class sees, or without one. */
public interface Spans {
  /**
   * Starts a span of a tracepoint as a child of the current one. It returns null if the tracepoint is not enabled for
   * the current request, or there is none.
   */
  Activation start(Point point);

  /** Returns the place for variables of the current request: the current span. It returns null if there is none. */
  Capture capture(Registry registry);
}
