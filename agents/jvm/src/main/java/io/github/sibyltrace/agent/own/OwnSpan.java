package io.github.sibyltrace.agent.own;

import com.grack.nanojson.JsonStringWriter;
import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.trace.Point;
import java.util.concurrent.ThreadLocalRandom;

/** A span of a method. */
final class OwnSpan extends Activation {
  /** Describes the request that a span begins. */
  static final class Root {
    final String traceId;
    final Request request;

    Root(String traceId, Request request) {
      this.traceId = traceId;
      this.request = request;
    }
  }

  private static final int INTERNAL = 1; // kinds of span in OTLP
  private static final int SERVER = 2;

  // The clock of all spans: that of the system when the class is loaded, continued without jumps.
  private static final long EPOCH = System.currentTimeMillis() * 1_000_000 - System.nanoTime();

  final OwnSpan parent; // null: the span begins a request
  final Request request;
  private final OwnSpans spans;
  private final Point point;
  private final String traceId;
  private final String id = randomId(16);
  private final long start = System.nanoTime();
  private long end;
  private String exception; // null: the method returned

  OwnSpan(OwnSpans spans, Point point, Root root) {
    this(spans, point, null, root.traceId, root.request);
  }

  OwnSpan(OwnSpans spans, Point point, OwnSpan parent) {
    this(spans, point, parent, parent.traceId, parent.request);
  }

  private OwnSpan(OwnSpans spans, Point point, OwnSpan parent, String traceId, Request request) {
    this.spans = spans;
    this.point = point;
    this.parent = parent;
    this.traceId = traceId;
    this.request = request;
  }

  /** Returns hexadecimal digits that are not all zero. */
  static String randomId(int digits) {
    ThreadLocalRandom r = ThreadLocalRandom.current();
    StringBuilder b = new StringBuilder(digits);
    while (b.length() < digits) {
      b.append(Long.toHexString(r.nextLong() | Long.MIN_VALUE)); // 16 digits
    }
    return b.toString();
  }

  @Override
  public void exit(Throwable thrown) {
    end = System.nanoTime();
    if (thrown != null) {
      exception = thrown.getClass().getName();
    }
    spans.end(this);
  }

  /** Writes the span in OTLP/JSON. */
  void write(JsonStringWriter w) {
    w.object().value("traceId", traceId).value("spanId", id);
    if (parent != null) {
      w.value("parentSpanId", parent.id);
    }
    w.value("name", point.tracepoint.operation).value("kind", parent == null ? SERVER : INTERNAL);
    w.value("startTimeUnixNano", Long.toString(EPOCH + start)).value("endTimeUnixNano", Long.toString(EPOCH + end));
    w.array("attributes");
    if (parent != null) {
      text(w, "sibyl.tracepoint.id", point.tracepoint.id);
    } else {
      w.object().value("key", "sibyl.plan").object("value").value("intValue", Long.toString(request.version)).end().end();
      if (request.arm != null) {
        text(w, "sibyl.arm", request.arm.name);
      }
    }
    text(w, "code.function.name", point.tracepoint.code);
    if (exception != null) {
      text(w, "error.type", exception);
    }
    w.end();
    if (exception != null) {
      w.object("status").value("code", 2).end();
    }
    w.end();
  }

  static void text(JsonStringWriter w, String key, String value) {
    w.object().value("key", key).object("value").value("stringValue", value).end().end();
  }
}
