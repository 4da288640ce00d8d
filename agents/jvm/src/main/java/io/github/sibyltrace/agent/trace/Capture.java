package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.plan.Request;

/** Takes the variables of one execution of a method, as attributes of the current span. */
public abstract class Capture {
  final Request request;
  final boolean recording;

  /**
   * Creates a capture.
   *
   * @param recording whether the span will be exported
   */
  protected Capture(Request request, boolean recording) {
    this.request = request;
    this.recording = recording;
  }

  /**
   * Sets an attribute.
   *
   * @param value a Long, Double, Boolean or String
   */
  protected abstract void set(String key, Object value);
}
