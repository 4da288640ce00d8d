package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.bridge.Bridge;

/** Finds the way to make spans. */
public interface SpansFactory {
  /** Returns the way to make spans in classes of a loader; always the same for loaders that see the same API. */
  Spans spansFor(ClassLoader loader);

  /** Returns the wrapper of samplers, through which requests get a decision about tracepoints where they enter. */
  Bridge.SamplerWrapper samplers(Registry registry);

  /** Returns the gate of OpenTelemetry's spans, which lets those start that are enabled. */
  Bridge.SpanGate gate(Registry registry);
}
