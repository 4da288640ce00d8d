package io.github.sibyltrace.agent.control;

import io.github.sibyltrace.agent.plan.InvalidPlanException;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.stacks.Stacks;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.List;

/** A connection over OpAMP with plain HTTP, as docs/agents.md describes it. OpAMP has no place for hits, cost and stacks. */
final class OpAmp implements Connection {
  private static final String PLAN = "sibyl.tracepoints"; // files of the configuration
  private static final String CATALOGUE = "sibyl.catalogue";
  private static final long POLL = 2_000; // ms
  private static final int CAPABILITIES = 1 | 2 | 4 | 2048 | 4096; // status, remote and effective configuration, health, remote status
  private static final int APPLIED = 1;
  private static final int FAILED = 3;
  private static final int REPORT_FULL_STATE = 1;

  private final Settings settings;
  private final Http http;
  private final SecureRandom random = new SecureRandom();
  private volatile byte[] id = new byte[16];
  private long sequence; // guarded by this

  OpAmp(Settings settings) {
    this.settings = settings;
    this.http = new Http(settings.opamp, settings.token);
    renewId();
  }

  @Override
  public void renewId() {
    byte[] b = new byte[16];
    random.nextBytes(b);
    id = b;
  }

  @Override
  public void register(List<Tracepoint> catalogue, boolean stacks) throws IOException {
    Protobuf description = new Protobuf();
    settings.resource.forEach((key, value) -> description.message(1, new Protobuf().text(1, key).message(2, new Protobuf().text(1, value))));
    Protobuf file = new Protobuf().text(1, Client.catalogue(catalogue)).text(2, "application/json");
    Protobuf map = new Protobuf().message(1, new Protobuf().text(1, CATALOGUE).message(2, file));
    exchange(new Protobuf().message(3, description).message(6, new Protobuf().message(1, map)));
  }

  @Override
  public Plan plan(String hash, int waitSeconds, long mostMillis) throws IOException, InvalidPlanException {
    long end = System.nanoTime() + Math.min(waitSeconds * 1000L, mostMillis) * 1_000_000;
    while (true) {
      Protobuf m = new Protobuf();
      if (hash != null) {
        m.message(7, new Protobuf().text(1, hash).integer(2, APPLIED));
      }
      Plan p = planIn(exchange(m));
      if (p != null && !p.hash.equals(hash)) {
        return p;
      }
      long left = (end - System.nanoTime()) / 1_000_000;
      if (left <= 0) {
        return null;
      }
      try {
        Thread.sleep(Math.min(left, POLL));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return null;
      }
    }
  }

  /** Returns the plan in an answer, null if there is none. */
  private static Plan planIn(byte[] answer) throws IOException, InvalidPlanException {
    byte[] remote = Protobuf.Reader.find(answer, 3);
    byte[] map = remote == null ? null : Protobuf.Reader.find(remote, 1);
    for (Protobuf.Reader r = new Protobuf.Reader(map == null ? new byte[0] : map); r.next(); ) {
      byte[] name = Protobuf.Reader.find(r.value, 1);
      byte[] file = Protobuf.Reader.find(r.value, 2);
      byte[] body = file == null ? null : Protobuf.Reader.find(file, 1);
      if (name != null && body != null && new String(name, StandardCharsets.UTF_8).equals(PLAN)) {
        return Plan.decode(new String(body, StandardCharsets.UTF_8));
      }
    }
    return null;
  }

  @Override
  public int status(Plan plan, String error, List<Registry.Outcome> outcomes, List<Stacks> stacks) throws IOException {
    Protobuf health = new Protobuf().integer(1, 1);
    for (Registry.Outcome o : outcomes) {
      Protobuf component = new Protobuf().integer(1, o.state.equals("applied") ? 1 : 0).text(3, Limits.reason(o.reason)).text(4, o.state);
      health.message(6, new Protobuf().text(1, o.id).message(2, component));
    }
    Protobuf m = new Protobuf().message(5, health);
    if (plan != null || !error.isEmpty()) {
      String hash = plan == null ? "" : plan.hash;
      m.message(7, new Protobuf().text(1, hash).integer(2, error.isEmpty() ? APPLIED : FAILED).text(3, Limits.reason(error)));
    }
    exchange(m);
    return 0;
  }

  /** Sends a message with the given fields, and returns the answer. */
  private synchronized byte[] exchange(Protobuf fields) throws IOException {
    Protobuf head = new Protobuf().bytes(1, id).integer(2, ++sequence).integer(4, CAPABILITIES);
    byte[] a = head.toBytes();
    byte[] b = fields.toBytes();
    byte[] message = new byte[a.length + b.length];
    System.arraycopy(a, 0, message, 0, a.length);
    System.arraycopy(b, 0, message, a.length, b.length);
    byte[] answer = http.send("POST", "", "application/x-protobuf", message);
    check(answer);
    return answer;
  }

  /** Throws the error in an answer, as the status over HTTP that means the same. */
  private static void check(byte[] answer) throws IOException {
    boolean unknown = false;
    for (Protobuf.Reader r = new Protobuf.Reader(answer); r.next(); ) {
      if (r.field == 8) {
        throw new Http.RefusedException(HttpURLConnection.HTTP_CONFLICT, "another agent has the ID", 0);
      }
      if (r.field == 2) {
        byte[] reason = Protobuf.Reader.find(r.value, 2);
        throw new IOException("Sibyl refuses a message: " + (reason == null ? "" : new String(reason, StandardCharsets.UTF_8)));
      }
      unknown |= r.field == 6 && (r.number & REPORT_FULL_STATE) != 0;
    }
    if (unknown) {
      throw new Http.RefusedException(HttpURLConnection.HTTP_NOT_FOUND, "the agent is unknown", 0);
    }
  }
}
