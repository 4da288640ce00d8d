package io.github.sibyltrace.agent.trace;

import java.util.function.Predicate;

/** Selects the tracepoints of an application. Methods are selected by {@code package.Class.method}. */
public final class Selection {
  final Predicate<String> areEntries; // requests begin there, in an application without OpenTelemetry
  final Predicate<String> haveVariables; // their arguments, returned values and exceptions may be captured

  public final boolean spans; // whether the spans of OpenTelemetry inside of requests are tracepoints, which start if they are enabled

  public Selection(Predicate<String> areEntries, Predicate<String> haveVariables, boolean spans) {
    this.areEntries = areEntries;
    this.haveVariables = haveVariables;
    this.spans = spans;
  }
}
