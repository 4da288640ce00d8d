package io.github.sibyltrace.agent.own;

import com.grack.nanojson.JsonStringWriter;
import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.stacks.Served;
import io.github.sibyltrace.agent.trace.Capture;
import io.github.sibyltrace.agent.trace.Point;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/** A span of a method. */
final class OwnSpan extends Activation {
  private static final int INTERNAL = 1; // kinds of span in OTLP
  private static final int SERVER = 2;

  // The clock of all spans: that of the system when the class is loaded, continued without jumps.
  private static final long EPOCH = System.currentTimeMillis() * 1_000_000 - System.nanoTime();

  final OwnSpan parent; // null: the span begins a request
  final Request request;
  private final OwnSpans spans;
  private final Point point;
  final String traceId;
  final String id = randomId(16);
  private final long start = System.nanoTime();
  private volatile long end; // 0: it has not ended
  private String exception; // null: the method returned
  private final Map<String, Object> variables = new LinkedHashMap<>(0);

  /** Starts a span. */
  OwnSpan(OwnSpans spans, Point point, OwnSpan parent, String traceId, Request request) {
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

  /** Returns the request that begins with this span. */
  Served served() {
    return new Served(this) {
      @Override
      protected String name() {
        return point.tracepoint.operation;
      }

      @Override
      protected String kind() {
        return point.tracepoint.spanKind;
      }

      @Override
      protected boolean hasEnded() {
        return end != 0;
      }

      @Override
      protected long nanos() {
        return (end == 0 ? System.nanoTime() : end) - start;
      }
    };
  }

  /** Returns the place for variables of the execution. */
  Capture capture() {
    return new Capture(request, true) {
      @Override
      protected void set(String key, Object value) {
        variables.put(key, value);
      }
    };
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
      attribute(w, "sibyl.tracepoint.id", point.tracepoint.id);
    } else {
      attribute(w, "sibyl.plan", request.version);
      if (request.arm != null) {
        attribute(w, "sibyl.arm", request.arm.name);
      }
    }
    attribute(w, "code.function.name", point.tracepoint.code);
    variables.forEach((key, value) -> attribute(w, key, value));
    if (exception != null) {
      attribute(w, "error.type", exception);
    }
    w.end();
    if (exception != null) {
      w.object("status").value("code", 2).end();
    }
    w.end();
  }

  /** Writes an attribute: a Long, Double, Boolean or String. */
  static void attribute(JsonStringWriter w, String key, Object value) {
    w.object().value("key", key).object("value");
    if (value instanceof Long) {
      w.value("intValue", value.toString());
    } else if (value instanceof Double) {
      w.value("doubleValue", value.toString()); // as text, since JSON has no infinity
    } else if (value instanceof Boolean) {
      w.value("boolValue", (Boolean) value);
    } else {
      w.value("stringValue", value.toString());
    }
    w.end().end();
  }
}
