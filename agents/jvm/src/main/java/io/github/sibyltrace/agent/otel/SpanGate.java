package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.trace.Point;
import io.github.sibyltrace.agent.trace.Registry;
import io.github.sibyltrace.agent.trace.ThreadState;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.common.InstrumentationScopeInfo;

/**
 * Lets those spans start that are enabled. The others are replaced by spans without effect, which have the context of the
 * nearest enabled span: it becomes the parent of their children, here and in the next service. SERVER and CONSUMER spans
 * and the first spans of requests always start.
 */
public final class SpanGate implements Bridge.SpanGate {
  private final ThreadLocal<ThreadState> threads = ThreadLocal.withInitial(ThreadState::new);
  private final Registry registry;

  public SpanGate(Registry registry) {
    this.registry = registry;
  }

  @Override
  public Object replace(Object builder, Object parent, String name, Object kind, Object scope) {
    SpanContext above = Span.fromContext(parent == null ? Context.current() : (Context) parent).getSpanContext();
    if (!above.isValid() || above.isRemote() || kind == SpanKind.SERVER || kind == SpanKind.CONSUMER) {
      return null;
    }
    String scopeName = ((InstrumentationScopeInfo) scope).getName();
    Point point = scopeName.equals(Tracepoint.SCOPE) ? null : registry.spans(scopeName, name, ((SpanKind) kind).name());
    if (point == null) {
      return null;
    }
    Request request = threads.get().request(registry.plans(), above.getTraceId(), above.getTraceState().get(DecidingSampler.KEY));
    if (!point.hit(request, above.isSampled())) {
      return Span.wrap(above);
    }
    ((SpanBuilder) builder).setAttribute(OtelSpans.ID, point.tracepoint.id);
    return null;
  }
}
