package io.github.sibyltrace.agent.own;

import com.grack.nanojson.JsonStringWriter;
import com.grack.nanojson.JsonWriter;
import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.plan.Tracepoint;
import java.io.IOException;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/** Sends spans as OTLP over HTTP, in JSON. Spans that do not fit in its queue are lost. */
public final class Exporter {
  private static final int QUEUE = 8192; // spans
  private static final int BATCH = 1024; // spans
  private static final long INTERVAL = 1000; // ms
  private static final int TIMEOUT = 10_000; // ms

  private final URI endpoint;
  private final Map<String, String> resource;
  private final Log log;
  private final ArrayBlockingQueue<OwnSpan> queue = new ArrayBlockingQueue<>(QUEUE);
  private final AtomicBoolean started = new AtomicBoolean();
  private boolean failing; // of the thread that sends

  /** Creates an exporter that starts its thread with the first span. */
  public Exporter(URI endpoint, Map<String, String> resource, Log log) {
    this.endpoint = endpoint;
    this.resource = resource;
    this.log = log;
  }

  void add(OwnSpan span) {
    queue.offer(span);
    if (!started.get() && !started.getAndSet(true)) {
      Thread t = new Thread(this::run, "sibyl-agent-spans");
      t.setDaemon(true);
      t.setContextClassLoader(null);
      t.start();
      Runtime.getRuntime().addShutdownHook(new Thread(this::flush, "sibyl-agent-last-spans"));
    }
  }

  private void run() {
    try {
      while (true) {
        Thread.sleep(INTERVAL);
        flush();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private synchronized void flush() {
    List<OwnSpan> batch = new ArrayList<>();
    while (queue.drainTo(batch, BATCH) > 0) {
      try {
        send(encode(batch));
        failing = false;
      } catch (IOException e) {
        if (!failing) {
          log.warn("cannot send spans to " + endpoint + ": " + e);
        }
        failing = true;
      }
      batch.clear();
    }
  }

  private String encode(List<OwnSpan> batch) {
    JsonStringWriter w = JsonWriter.string().object().array("resourceSpans").object().object("resource").array("attributes");
    resource.forEach((key, value) -> OwnSpan.attribute(w, key, value));
    w.end().end().array("scopeSpans").object().object("scope").value("name", Tracepoint.SCOPE).end().array("spans");
    batch.forEach(s -> s.write(w));
    return w.end().end().end().end().end().end().done();
  }

  private void send(String json) throws IOException {
    HttpURLConnection c = (HttpURLConnection) new java.net.URL(endpoint.toString().replaceAll("/+$", "") + "/v1/traces").openConnection();
    c.setConnectTimeout(TIMEOUT);
    c.setReadTimeout(TIMEOUT);
    c.setRequestMethod("POST");
    c.setDoOutput(true);
    c.setRequestProperty("Content-Type", "application/json");
    byte[] body = json.getBytes(StandardCharsets.UTF_8);
    c.setFixedLengthStreamingMode(body.length);
    try (OutputStream out = c.getOutputStream()) {
      out.write(body);
    }
    int code = c.getResponseCode();
    if (code / 100 != 2) {
      throw new IOException("HTTP status " + code);
    }
    c.getInputStream().close(); // keeps the connection
  }
}
