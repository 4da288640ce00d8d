package io.github.sibyltrace.agent.plan;

import java.util.List;
import java.util.Locale;

/** An entry of the catalogue: a method whose executions can become spans, a variable of it, or a span of OpenTelemetry. */
public final class Tracepoint {
  /** The instrumentation scope of the agent's spans. */
  public static final String SCOPE = "github.com/sibyl-trace/sibyl/agents/jvm";

  private static final String SPAN = "span";
  private static final String VARIABLE = "variable";

  public final String id;
  public final String layer;
  public final String kind;
  public final String service;
  public final String scope;
  public final String operation; // name of its spans, class and method without package for a method; key of a variable's attribute
  public final String spanKind; // "": a variable
  public final String code; // class with package, and method; "": unknown
  public final String parent; // ID of the method of a variable, or of the only caller of a method; "": unknown
  public final boolean baseline; // always enabled: the method is an entry of requests

  private Tracepoint(String id, String layer, String kind, String service, String scope, String operation, String spanKind, String code, String parent, boolean baseline) {
    this.id = id;
    this.layer = layer;
    this.kind = kind;
    this.service = service;
    this.scope = scope;
    this.operation = operation;
    this.spanKind = spanKind;
    this.code = code;
    this.parent = parent;
    this.baseline = baseline;
  }

  /**
   * Describes a method.
   *
   * @param signature name and types of the parameters, without packages
   * @param isEntry whether requests begin there
   */
  public static Tracepoint ofMethod(String service, String className, String signature, boolean isEntry) {
    String method = signature.substring(0, signature.indexOf('('));
    String id = service + "/" + className + "." + signature;
    String operation = className.substring(className.lastIndexOf('.') + 1) + "." + method;
    return new Tracepoint(id, "app", SPAN, service, SCOPE, operation, isEntry ? "server" : "internal", className + "." + method, "", isEntry);
  }

  /** Returns a copy of a method with its only caller. */
  public Tracepoint below(String caller) {
    return new Tracepoint(id, layer, kind, service, scope, operation, spanKind, code, caller, baseline);
  }

  /** Describes a variable of a method. */
  public static Tracepoint ofVariable(Tracepoint method, String name) {
    return new Tracepoint(method.id + ":" + name, method.layer, VARIABLE, method.service, SCOPE, method.operation + "." + name, "", method.code, method.id, false);
  }

  /** Describes the spans of OpenTelemetry with the given instrumentation scope and name. */
  public static Tracepoint ofSpan(String service, String scope, String name, String spanKind) {
    return new Tracepoint(spanId(service, scope, name), "app", SPAN, service, scope, name, spanKind.toLowerCase(Locale.ROOT), "", "", false);
  }

  /** Returns the ID of spans of OpenTelemetry. */
  public static String spanId(String service, String scope, String name) {
    return service + "/" + scope + "/" + name;
  }

  /** Reports whether the protocol can carry the entry. */
  public boolean isValid() {
    return Limits.isName(id) && Limits.isName(operation) && (code.isEmpty() || Limits.isName(code)) && (scope.isEmpty() || Limits.isName(scope));
  }

  /** Estimates the CPU time of a hit in nanoseconds, before any was measured. */
  public int estimatedNanos() {
    return kind.equals(VARIABLE) ? 150 : 1500;
  }

  /** Estimates the size in OTLP: of a span with IDs, times and lengths, its name, and two attributes, or of one attribute. */
  public int estimatedBytes() {
    if (kind.equals(VARIABLE)) {
      return 20 + operation.length();
    }
    return 70 + operation.length() + 2 * 10 + "sibyl.tracepoint.id".length() + id.length() + "code.function.name".length() + code.length();
  }

  /** Returns the hash of a catalogue, which is ascending by ID. */
  public static String hash(List<Tracepoint> catalogue) {
    Encoder e = new Encoder("sibyl catalogue 1");
    e.integer(catalogue.size());
    for (Tracepoint t : catalogue) {
      for (String s : new String[] {t.id, t.layer, t.kind, t.service, t.scope, t.operation, t.spanKind, t.code, t.parent, "", ""}) {
        e.string(s);
      }
      e.integer(t.estimatedNanos());
      e.integer(t.estimatedBytes());
      e.bool(t.baseline);
    }
    return e.sum();
  }
}
