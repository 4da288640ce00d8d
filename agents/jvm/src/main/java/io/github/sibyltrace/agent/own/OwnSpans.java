package io.github.sibyltrace.agent.own;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.stacks.StackSampler;
import io.github.sibyltrace.agent.threads.ThreadSlot;
import io.github.sibyltrace.agent.threads.ThreadTable;
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
  private final ThreadTable threads; // null: none
  private final ThreadLocal<OwnSpan> current = new ThreadLocal<>();
  private volatile StackSampler sampler; // null: none

  /**
   * Creates the way to make spans.
   *
   * @param threads has the span of each thread, for the kernel agent; null: it does not ask
   */
  public OwnSpans(Exporter exporter, ThreadTable threads) {
    this.exporter = exporter;
    this.threads = threads;
  }

  /** Tells the spans of threads to a sampler, too. */
  public void tell(StackSampler s) {
    sampler = s;
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
    tell(span);
    return span;
  }

  /** Tells the kernel agent and the sampler the span of this thread; null: none. */
  private void tell(OwnSpan span) {
    StackSampler s = sampler;
    if (s != null && s.isOn()) {
      if (span == null) {
        s.rests();
      } else {
        OwnSpan first = span;
        while (first.parent != null) {
          first = first.parent;
        }
        s.works(span.traceId, first, x -> ((OwnSpan) x).served());
      }
    }
    ThreadSlot slot = threads == null ? null : threads.current();
    if (slot == null) {
      return;
    }
    slot.clear();
    if (span != null) {
      slot.set(span.traceId, span.id, true);
    }
  }

  void end(OwnSpan span) {
    if (span.parent == null) {
      current.remove();
    } else {
      current.set(span.parent);
    }
    tell(span.parent);
    exporter.add(span);
  }
}
