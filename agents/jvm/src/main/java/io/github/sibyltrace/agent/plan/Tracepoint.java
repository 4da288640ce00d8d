package io.github.sibyltrace.agent.plan;

import java.util.List;
import java.util.function.Predicate;

/** An entry of the catalogue: a method whose executions can become spans. */
public final class Tracepoint {
  public static final String LAYER = "runtime";
  public static final String KIND = "span";
  public static final String SCOPE = "github.com/sibyl-trace/sibyl/agents/jvm";

  public final String id;
  public final String service;
  public final String operation; // the name of its spans: class and method, without package
  public final String code; // class with package, and method
  public final boolean baseline; // always enabled: the method is an entry of requests

  public Tracepoint(String service, String className, String signature, Predicate<String> isEntry) {
    String method = signature.substring(0, signature.indexOf('('));
    this.service = service;
    this.id = service + "/" + className + "." + signature;
    this.operation = className.substring(className.lastIndexOf('.') + 1) + "." + method;
    this.code = className + "." + method;
    this.baseline = isEntry.test(code);
  }

  public String spanKind() {
    return baseline ? "server" : "internal";
  }

  /** Reports whether the protocol can carry the entry. */
  public boolean isValid() {
    return Limits.isName(id) && Limits.isName(operation) && Limits.isName(code);
  }

  /** Estimates the CPU time of a hit in nanoseconds, before any was measured. */
  public int estimatedNanos() {
    return 1500;
  }

  /** Estimates the size of a span in OTLP: IDs, times and lengths, its name, and two attributes. */
  public int estimatedBytes() {
    return 70 + operation.length() + 2 * 10 + "sibyl.tracepoint.id".length() + id.length() + "code.function.name".length() + code.length();
  }

  /** Returns the hash of a catalogue, which is ascending by ID. */
  public static String hash(List<Tracepoint> catalogue) {
    Encoder e = new Encoder("sibyl catalogue 1");
    e.integer(catalogue.size());
    for (Tracepoint t : catalogue) {
      for (String s : new String[] {t.id, LAYER, KIND, t.service, SCOPE, t.operation, t.spanKind(), t.code, "", "", ""}) {
        e.string(s);
      }
      e.integer(t.estimatedNanos());
      e.integer(t.estimatedBytes());
      e.bool(t.baseline);
    }
    return e.sum();
  }
}
