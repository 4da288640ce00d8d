package io.github.sibyltrace.agent.control;

import com.grack.nanojson.JsonArray;
import com.grack.nanojson.JsonParser;
import com.grack.nanojson.JsonParserException;
import com.grack.nanojson.JsonStringWriter;
import com.grack.nanojson.JsonWriter;
import io.github.sibyltrace.agent.plan.InvalidPlanException;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.stacks.Stacks;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.List;

/** A connection over the tracepoint protocol, which docs/agents.md describes. */
final class Client implements Connection {
  private static final int SPARE = 15_000; // ms, in addition to the time of a long poll
  private static final int MAX_PAGE_ROUNDS = 3;

  private final Settings settings;
  private final String session = random();
  private final Http http;
  private volatile String id = random();

  Client(Settings settings) {
    this.settings = settings;
    this.http = new Http(settings.endpoint, settings.token);
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

  @Override
  public void renewId() {
    id = random();
  }

  @Override
  public void register(List<Tracepoint> catalogue, boolean stacks) throws IOException {
    String hash = Tracepoint.hash(catalogue);
    int pages = (catalogue.size() + Limits.PAGE - 1) / Limits.PAGE;
    JsonArray missing = put(catalogue, stacks, hash, pages == 1 ? 0 : -1);
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
        missing = put(catalogue, stacks, hash, page);
      }
    }
  }

  /**
   * Sends a registration.
   *
   * @param page number of the page to send with it; -1: none
   * @return the numbers of the missing pages
   */
  private JsonArray put(List<Tracepoint> catalogue, boolean stacks, String hash, int page) throws IOException {
    JsonStringWriter w = JsonWriter.string().object().value("protocol", Limits.VERSION).value("session", session);
    w.object("resource");
    settings.resource.forEach(w::value);
    w.end().array("capabilities").value("span").value("variable").value("rate").value("filter");
    (stacks ? w.value("stacks") : w).end();
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

  /** Returns a whole catalogue as JSON. */
  static String catalogue(List<Tracepoint> all) {
    JsonStringWriter w = JsonWriter.string().object().value("hash", Tracepoint.hash(all)).value("size", all.size()).array("tracepoints");
    all.forEach(t -> write(w, t));
    return w.end().end().done();
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

  @Override
  public Plan plan(String hash, int waitSeconds, long mostMillis) throws IOException, InvalidPlanException {
    HttpURLConnection c = http.open(path("/plan?wait=" + waitSeconds + "s&session=" + session), Math.min(waitSeconds * 1000L + SPARE, mostMillis));
    if (hash != null) {
      c.setRequestProperty("If-None-Match", '"' + hash + '"');
    }
    String body = new String(Http.receive(c), StandardCharsets.UTF_8);
    return c.getResponseCode() == HttpURLConnection.HTTP_NOT_MODIFIED ? null : Plan.decode(body);
  }

  @Override
  public int status(Plan plan, String error, List<Registry.Outcome> outcomes, List<Stacks> stacks) throws IOException {
    JsonStringWriter w = JsonWriter.string().object().value("protocol", Limits.VERSION).value("session", session);
    w.value("version", plan == null ? 0 : plan.version).value("hash", plan == null ? "" : plan.hash);
    w.value("error", Limits.reason(error)).array("tracepoints");
    for (Registry.Outcome o : outcomes) {
      w.object().value("id", o.id).value("state", o.state).value("reason", Limits.reason(o.reason));
      w.value("incomplete", o.incomplete).value("hits", o.point == null ? 0 : o.point.hits()).value("drops", o.point == null ? 0 : o.point.drops());
      w.value("cost_ns", o.point == null ? 0 : o.point.meanNanos());
      w.value("bytes", o.point == null || o.point.hits() == o.point.drops() ? 0 : o.point.tracepoint.estimatedBytes()).end();
    }
    w.end();
    if (!stacks.isEmpty()) {
      w.array("stacks");
      stacks.forEach(s -> write(w, s));
      w.end();
    }
    String answer = send("POST", "/status", w.end().done());
    if (answer.isEmpty()) {
      return 0;
    }
    try {
      return JsonParser.object().from(answer).getInt("stack_seconds", 0);
    } catch (JsonParserException e) {
      throw new IOException("the answer to a status is not JSON", e);
    }
  }

  private static void write(JsonStringWriter w, Stacks s) {
    w.object().value("operation", s.operation).value("span_kind", s.kind).value("requests", s.requests).array("frames");
    for (Stacks.Frame f : s.frames) {
      w.object();
      if (f.id != null) {
        w.value("id", f.id);
      }
      w.value("caller", f.caller).value("ns", f.nanos()).end();
    }
    w.end().end();
  }

  private String path(String of) {
    return "/agent/v1/agents/" + URLEncoder.encode(id, StandardCharsets.UTF_8) + of;
  }

  private String send(String method, String path, String json) throws IOException {
    byte[] answer = http.send(method, path(path), "application/json", json.getBytes(StandardCharsets.UTF_8));
    return new String(answer, StandardCharsets.UTF_8);
  }
}
