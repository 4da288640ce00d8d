package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.stacks.Served;
import io.github.sibyltrace.agent.stacks.StackSampler;
import io.github.sibyltrace.agent.threads.ThreadSlot;
import io.github.sibyltrace.agent.threads.ThreadTable;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import java.util.function.Function;

/** Tells the span of the current context to the kernel agent and to the sampler of stacks. */
public final class OtelContexts implements Bridge.ContextListener {
  private final ThreadTable table; // null: none
  private final StackSampler sampler; // null: none
  private final Function<Object, Served> first;

  /**
   * Creates a listener.
   *
   * @param first returns the request that begins with a span, null if none does
   */
  public OtelContexts(ThreadTable table, StackSampler sampler, Function<Object, Served> first) {
    this.table = table;
    this.sampler = sampler;
    this.first = first;
  }

  @Override
  public void changed(Object context) {
    ThreadSlot slot = table == null ? null : table.current();
    boolean sampled = sampler != null && sampler.isOn();
    if (slot == null && !sampled) {
      return;
    }
    if (slot != null) {
      slot.clear(); // whatever happens below, the thread keeps no former span
    }
    Span span = Span.fromContext((Context) context);
    SpanContext of = span.getSpanContext();
    if (slot != null && of.isValid()) {
      slot.set(of.getTraceId(), of.getSpanId(), of.isSampled());
    }
    if (sampled && of.isValid()) {
      sampler.works(of.getTraceId(), span, first);
    } else if (sampled) {
      sampler.rests();
    }
  }
}
