package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.stacks.Served;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.sdk.trace.ReadableSpan;
import java.util.Locale;
import java.util.function.Function;

/** Finds the requests that begin with spans of an OpenTelemetry SDK. */
public final class OtelServed implements Function<Object, Served> {
  @Override
  public Served apply(Object span) {
    if (!(span instanceof ReadableSpan)) {
      return null; // it is not sampled
    }
    ReadableSpan s = (ReadableSpan) span;
    SpanContext parent = s.getParentSpanContext();
    return parent.isValid() && !parent.isRemote() ? null : new Request(s);
  }

  private static final class Request extends Served {
    private final ReadableSpan span;

    Request(ReadableSpan span) {
      super(span);
      this.span = span;
    }

    @Override
    protected String name() {
      return span.getName();
    }

    @Override
    protected String kind() {
      return span.getKind().name().toLowerCase(Locale.ROOT);
    }

    @Override
    protected boolean hasEnded() {
      return span.hasEnded();
    }

    @Override
    protected long nanos() {
      return span.getLatencyNanos();
    }
  }
}
