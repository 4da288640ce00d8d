package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.threads.ThreadSlot;
import io.github.sibyltrace.agent.threads.ThreadTable;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;

/** Writes the span of the current context into the record of the thread. */
public final class OtelContexts implements Bridge.ContextListener {
  private final ThreadTable table;

  public OtelContexts(ThreadTable table) {
    this.table = table;
  }

  @Override
  public void changed(Object context) {
    ThreadSlot slot = table.current();
    if (slot == null) {
      return;
    }
    slot.clear(); // whatever happens below, the thread keeps no former span
    SpanContext span = Span.fromContext((Context) context).getSpanContext();
    if (span.isValid()) {
      slot.set(span.getTraceId(), span.getSpanId(), span.isSampled());
    }
  }
}
