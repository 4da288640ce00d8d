package io.github.sibyltrace.agent.control;

import com.grack.nanojson.JsonArray;
import com.grack.nanojson.JsonObject;
import com.grack.nanojson.JsonParser;
import com.grack.nanojson.JsonParserException;
import com.grack.nanojson.JsonStringWriter;
import com.grack.nanojson.JsonWriter;
import io.github.sibyltrace.agent.plan.InvalidPlanException;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.List;
import java.util.zip.GZIPOutputStream;

/** A client of the tracepoint protocol, which docs/agents.md describes. */
final class Client {
  private static final int TIMEOUT = 15_000; // ms, in addition to the time of a long poll
  private static final int MAX_RETRY_AFTER = 300; // s
  private static final int MIN_COMPRESSED = 1024; // bytes
  private static final int MAX_PAGE_ROUNDS = 3;

  /** An error response. */
  static final class RefusedException extends IOException {
    private static final long serialVersionUID = 1;
    final int code;
    final int retryAfter; // s; 0: not given

    RefusedException(int code, String reason, int retryAfter) {
      super("HTTP status " + code + ": " + reason);
      this.code = code;
      this.retryAfter = retryAfter;
    }
  }

  private final Settings settings;
  private final String session = random();
  private volatile String id = random();

  Client(Settings settings) {
    this.settings = settings;
  }

  private static String random() {
    byte[] b = new byte[16];
    new SecureRandom().nextBytes(b);
    StringBuilder s = new StringBuilder();
    for (byte x : b) {
      s.append(Character.forDigit(x >> 4 & 15, 16)).append(Character.forDigit(x & 15, 16));
    }
    return s.toString();
  }

  /** Chooses another ID, because another agent has the present one. */
  void renewId() {
    id = random();
  }

  /** Sends the description of the agent, and those pages of its catalogue that Sibyl lacks. */
  void register(List<Tracepoint> catalogue) throws IOException {
    String hash = Tracepoint.hash(catalogue);
    int pages = (catalogue.size() + Limits.PAGE - 1) / Limits.PAGE;
    JsonArray missing = put(catalogue, hash, pages == 1 ? 0 : -1);
    for (int round = 0; !missing.isEmpty(); round++) {
      if (round == MAX_PAGE_ROUNDS) {
        throw new IOException("Sibyl still lacks " + missing.size() + " pages of the catalogue");
      }
      JsonArray asked = missing;
      for (int i = 0; i < asked.size(); i++) {
        int page = asked.getInt(i, -1);
        if (page < 0 || page >= pages) {
          throw new IOException("Sibyl asks for page " + page + " of a catalogue of " + pages);
        }
        missing = put(catalogue, hash, page);
      }
    }
  }

  /**
   * Sends a registration.
   *
   * @param page number of the page to send with it; -1: none
   * @return the numbers of the missing pages
   */
  private JsonArray put(List<Tracepoint> catalogue, String hash, int page) throws IOException {
    JsonStringWriter w = JsonWriter.string().object().value("protocol", Limits.VERSION).value("session", session);
    w.object("resource");
    settings.resource.forEach(w::value);
    w.end().array("capabilities").value("span").value("variable").value("rate").value("filter").end();
    w.object("catalogue").value("hash", hash).value("size", catalogue.size()).end();
    if (page >= 0) {
      w.object("page").value("number", page).array("tracepoints");
      int from = page * Limits.PAGE;
      for (Tracepoint t : catalogue.subList(from, Math.min(from + Limits.PAGE, catalogue.size()))) {
        write(w, t);
      }
      w.end().end();
    }
    String answer = send("PUT", "", w.end().done());
    try {
      return JsonParser.object().from(answer).getArray("missing", new JsonArray());
    } catch (JsonParserException e) {
      throw new IOException("the answer to a registration is not JSON", e);
    }
  }

  private static void write(JsonStringWriter w, Tracepoint t) {
    w.object()
        .value("id", t.id)
        .value("layer", t.layer)
        .value("kind", t.kind)
        .value("service", t.service)
        .value("scope", t.scope)
        .value("operation", t.operation)
        .value("span_kind", t.spanKind)
        .value("code", t.code)
        .value("parent_hint", t.parent)
        .value("cost_ns", t.estimatedNanos())
        .value("bytes", t.estimatedBytes())
        .value("default", t.baseline)
        .end();
  }

  /**
   * Waits for a plan with another hash than the given one, null for any. It returns null if there is none within the
   * wait, and gives up a connection that is silent for longer than the wait allows, or for the given time.
   */
  Plan plan(String hash, int waitSeconds, long mostMillis) throws IOException, InvalidPlanException {
    HttpURLConnection c = open("/plan?wait=" + waitSeconds + "s&session=" + session);
    c.setConnectTimeout((int) Math.min(TIMEOUT, mostMillis));
    c.setReadTimeout((int) Math.min(waitSeconds * 1000 + TIMEOUT, mostMillis));
    if (hash != null) {
      c.setRequestProperty("If-None-Match", '"' + hash + '"');
    }
    String body = receive(c);
    return c.getResponseCode() == HttpURLConnection.HTTP_NOT_MODIFIED ? null : Plan.decode(body);
  }

  /**
   * Reports the states of tracepoints.
   *
   * @param plan null: the baseline
   * @param error why the last plan was rejected; "": it was not
   */
  void status(Plan plan, String error, List<Registry.Outcome> outcomes) throws IOException {
    JsonStringWriter w = JsonWriter.string().object().value("protocol", Limits.VERSION).value("session", session);
    w.value("version", plan == null ? 0 : plan.version).value("hash", plan == null ? "" : plan.hash);
    w.value("error", Limits.reason(error)).array("tracepoints");
    for (Registry.Outcome o : outcomes) {
      w.object().value("id", o.id).value("state", o.state).value("reason", Limits.reason(o.reason));
      w.value("hits", o.point == null ? 0 : o.point.hits()).value("drops", o.point == null ? 0 : o.point.drops());
      w.value("cost_ns", o.point == null ? 0 : o.point.meanNanos());
      w.value("bytes", o.point == null || o.point.hits() == o.point.drops() ? 0 : o.point.tracepoint.estimatedBytes()).end();
    }
    send("POST", "/status", w.end().end().done());
  }

  private HttpURLConnection open(String path) throws IOException {
    String base = settings.endpoint.toString().replaceAll("/+$", "");
    String url = base + "/agent/v1/agents/" + URLEncoder.encode(id, StandardCharsets.UTF_8) + path;
    HttpURLConnection c = (HttpURLConnection) new java.net.URL(url).openConnection();
    c.setConnectTimeout(TIMEOUT);
    c.setReadTimeout(TIMEOUT);
    c.setUseCaches(false);
    if (settings.token != null) {
      c.setRequestProperty("Authorization", "Bearer " + settings.token);
    }
    return c;
  }

  private String send(String method, String path, String json) throws IOException {
    byte[] body = json.getBytes(StandardCharsets.UTF_8);
    HttpURLConnection c = open(path);
    c.setRequestMethod(method);
    c.setDoOutput(true);
    c.setRequestProperty("Content-Type", "application/json");
    if (body.length >= MIN_COMPRESSED) {
      c.setRequestProperty("Content-Encoding", "gzip");
      body = gzip(body);
    }
    c.setFixedLengthStreamingMode(body.length);
    try (OutputStream out = c.getOutputStream()) {
      out.write(body);
    }
    return receive(c);
  }

  private static byte[] gzip(byte[] body) throws IOException {
    ByteArrayOutputStream b = new ByteArrayOutputStream();
    try (GZIPOutputStream z = new GZIPOutputStream(b)) {
      z.write(body);
    }
    return b.toByteArray();
  }

  private static String receive(HttpURLConnection c) throws IOException {
    int code = c.getResponseCode();
    if (code / 100 == 2) {
      return read(c.getInputStream(), Limits.BODY);
    }
    if (code == HttpURLConnection.HTTP_NOT_MODIFIED) {
      return "";
    }
    String body = read(c.getErrorStream(), 4096);
    String reason = "";
    try {
      JsonObject problem = JsonParser.object().from(body);
      reason = problem.getString("error", "");
    } catch (JsonParserException e) {
      // answers of proxies are not JSON
    }
    int retryAfter = Math.max(0, Math.min(c.getHeaderFieldInt("Retry-After", 0), MAX_RETRY_AFTER));
    throw new RefusedException(code, reason, retryAfter);
  }

  /** Reads a body of at most the given number of bytes; null: there is none. Reading it to its end keeps the connection open. */
  private static String read(InputStream in, int most) throws IOException {
    if (in == null) {
      return "";
    }
    try (InputStream i = in) {
      return new String(i.readNBytes(most), StandardCharsets.UTF_8);
    }
  }
}
