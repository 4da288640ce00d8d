package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.trace.Capture;
import io.github.sibyltrace.agent.trace.Point;
import io.github.sibyltrace.agent.trace.Registry;
import io.github.sibyltrace.agent.trace.Spans;
import io.github.sibyltrace.agent.trace.ThreadState;
import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;

/** Makes spans with OpenTelemetry, as children of the current span and through the exporter of the application. */
public final class OtelSpans implements Spans {
  static final AttributeKey<String> ID = AttributeKey.stringKey("sibyl.tracepoint.id");
  private static final AttributeKey<String> FUNCTION = AttributeKey.stringKey("code.function.name");

  private final ThreadLocal<ThreadState> threads = ThreadLocal.withInitial(ThreadState::new);
  private volatile Tracer tracer; // null: not known yet

  @Override
  public Activation start(Point point) {
    Span parent = Span.current();
    SpanContext context = parent.getSpanContext();
    ThreadState thread = threads.get();
    if (!context.isValid() || thread.busy) {
      return null;
    }
    Request request = thread.request(point.registry().plans(), context.getTraceId(), context.getTraceState().get(DecidingSampler.KEY));
    if (!point.hit(request, context.isSampled())) {
      return null;
    }
    Tracer t = tracer();
    if (t == null) {
      point.drop();
      return null;
    }
    thread.busy = true;
    try {
      long begin = point.measures() ? System.nanoTime() : 0;
      Tracepoint p = point.tracepoint;
      Span span = t.spanBuilder(p.operation).setAttribute(ID, p.id).setAttribute(FUNCTION, p.code).startSpan();
      return new Started(point, thread, span, span.makeCurrent(), begin == 0 ? -1 : System.nanoTime() - begin);
    } finally {
      thread.busy = false;
    }
  }

  @Override
  public Capture capture(Registry registry) {
    Span span = Span.current();
    SpanContext context = span.getSpanContext();
    ThreadState thread = threads.get();
    if (!context.isValid() || thread.busy) {
      return null;
    }
    return new Attributes(span, thread.request(registry.plans(), context.getTraceId(), context.getTraceState().get(DecidingSampler.KEY)));
  }

  /** Sets attributes of a span. */
  private static final class Attributes extends Capture {
    private final Span span;

    Attributes(Span span, Request request) {
      super(request, span.isRecording());
      this.span = span;
    }

    @Override
    protected void set(String key, Object value) {
      if (value instanceof Long) {
        span.setAttribute(key, (Long) value);
      } else if (value instanceof Double) {
        span.setAttribute(key, (Double) value);
      } else if (value instanceof Boolean) {
        span.setAttribute(key, (Boolean) value);
      } else {
        span.setAttribute(key, value.toString());
      }
    }
  }

  /**
   * Returns the tracer, null as long as the application has not set its OpenTelemetry: asking for it earlier would make
   * setting it fail.
   */
  private Tracer tracer() {
    if (tracer == null && GlobalOpenTelemetry.isSet()) {
      tracer = GlobalOpenTelemetry.getTracer(Tracepoint.SCOPE);
    }
    return tracer;
  }

  private static final class Started extends Activation {
    private final Point point;
    private final ThreadState thread;
    private final Span span;
    private final Scope scope;
    private final long spent; // ns at the start; -1: not measured

    Started(Point point, ThreadState thread, Span span, Scope scope, long spent) {
      this.point = point;
      this.thread = thread;
      this.span = span;
      this.scope = scope;
      this.spent = spent;
    }

    @Override
    public void exit(Throwable thrown) {
      long begin = spent < 0 ? 0 : System.nanoTime();
      thread.busy = true;
      try {
        scope.close();
        if (thrown != null) {
          span.setStatus(StatusCode.ERROR).recordException(thrown);
        }
        span.end();
      } finally {
        thread.busy = false;
      }
      if (spent >= 0) {
        point.measured(spent + System.nanoTime() - begin);
      }
    }
  }
}
