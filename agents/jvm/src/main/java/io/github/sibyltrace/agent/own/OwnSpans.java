package io.github.sibyltrace.agent.own;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.trace.Capture;
import io.github.sibyltrace.agent.trace.Point;
import io.github.sibyltrace.agent.trace.Registry;
import io.github.sibyltrace.agent.trace.Spans;

/**
 * Makes spans in applications without OpenTelemetry. A request begins where a thread calls an entry, and has its spans
 * in that thread.
 */
public final class OwnSpans implements Spans {
  private final Exporter exporter;
  private final ThreadLocal<OwnSpan> current = new ThreadLocal<>();

  public OwnSpans(Exporter exporter) {
    this.exporter = exporter;
  }

  @Override
  public Activation start(Point point) {
    OwnSpan parent = current.get();
    if (point.tracepoint.baseline) {
      return parent != null ? null : begin(first(point));
    }
    if (parent == null || !point.hit(parent.request, true)) {
      return null;
    }
    return begin(new OwnSpan(this, point, parent, parent.traceId, parent.request));
  }

  /** Returns the first span of a request. */
  private OwnSpan first(Point point) {
    String traceId = OwnSpan.randomId(32);
    Plan.Entry entry = new Plan.Entry(point.tracepoint.service, point.tracepoint.operation, point.tracepoint.spanKind, key -> null);
    return new OwnSpan(this, point, null, traceId, Request.of(point.registry().plans(), traceId, null, entry));
  }

  @Override
  public Capture capture(Registry registry) {
    OwnSpan span = current.get();
    return span == null ? null : span.capture();
  }

  private OwnSpan begin(OwnSpan span) {
    current.set(span);
    return span;
  }

  void end(OwnSpan span) {
    if (span.parent == null) {
      current.remove();
    } else {
      current.set(span.parent);
    }
    exporter.add(span);
  }
}
