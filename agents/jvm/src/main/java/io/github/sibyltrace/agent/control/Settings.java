package io.github.sibyltrace.agent.control;

import io.github.sibyltrace.agent.Arguments;
import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.trace.OwnClasses;
import io.github.sibyltrace.agent.trace.Selection;
import java.net.InetAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.UnknownHostException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/** The connection with a Sibyl service. */
public final class Settings {
  private static final int DEFAULT_RATE = 1000;
  private static final int DEFAULT_RESTORE = 60;
  private static final String DEFAULT_OTLP = "http://127.0.0.1:4318";

  public final String service;
  public final OwnClasses own;
  public final int spansPerSecond; // of each tracepoint
  public final int restoreAfter; // seconds from the last change of a tracepoint until methods without one are restored
  public final Selection selection;
  public final boolean waits; // whether threads tell their spans to the kernel agent
  public final URI otlp; // where spans go, in an application without OpenTelemetry
  final URI endpoint; // null: over OpAMP
  final URI opamp; // null: over HTTP
  final String token; // null: none
  public final Map<String, String> resource = new LinkedHashMap<>();

  /** Reads the settings. It throws an {@link IllegalArgumentException} that says what to correct. */
  public Settings(Arguments a, Classifier classifier) {
    endpoint = a.has("endpoint") ? url("endpoint", a.text("endpoint")) : null;
    opamp = a.has("opamp") ? url("opamp", a.text("opamp")) : null;
    if (endpoint != null && opamp != null) {
      throw new IllegalArgumentException("endpoint and opamp are two ways to the same service: give one of them");
    }
    service = service(a.text("service"));
    token = a.has("token") ? a.text("token") : System.getenv("SIBYL_TOKEN");
    own = new OwnClasses(a.pattern("include"), a.pattern("own"), a.pattern("exclude"), classifier);
    spansPerSecond = a.number(DEFAULT_RATE, "rate");
    restoreAfter = a.number(DEFAULT_RESTORE, "restore");
    selection = new Selection(matching(a.pattern("entry")), matching(a.pattern("variables")), isTrace(a.text("granularity")));
    waits = isOn("waits", a.text("waits"));
    String target = first(a.text("otlp"), System.getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), DEFAULT_OTLP);
    otlp = url("otlp", target);
    resource.put("service.name", service);
    resource.put("process.pid", Long.toString(ProcessHandle.current().pid()));
    resource.put("process.runtime.version", Runtime.version().toString());
    resource.put("telemetry.sdk.language", "java");
    resource.put("telemetry.distro.name", "sibyl-agent-jvm");
    try {
      resource.put("host.name", InetAddress.getLocalHost().getHostName());
    } catch (UnknownHostException e) {
      // the attribute is for display
    }
  }

  /** Reports whether the coarsest granularity is that of traces: then the spans inside of requests are tracepoints. */
  private static boolean isTrace(String granularity) {
    if (granularity == null || granularity.equals("server")) {
      return false;
    }
    if (granularity.equals("trace")) {
      return true;
    }
    throw new IllegalArgumentException("granularity: \"" + granularity + "\" is not trace or server");
  }

  /** Reports whether there is a service to connect with. */
  public boolean connects() {
    return endpoint != null || opamp != null;
  }

  /** Reports whether stacks show all tracepoints: they show no spans of OpenTelemetry. OpAMP cannot carry them. */
  public boolean samples() {
    return endpoint != null && !selection.spans;
  }

  private static boolean isOn(String name, String value) {
    if (value == null || value.equals("off")) {
      return false;
    }
    if (value.equals("on")) {
      return true;
    }
    throw new IllegalArgumentException(name + ": \"" + value + "\" is not on or off");
  }

  private static Predicate<String> matching(Pattern p) {
    return p == null ? name -> false : p.asMatchPredicate();
  }

  private static URI url(String name, String text) {
    try {
      URI u = new URI(text);
      if (("http".equals(u.getScheme()) || "https".equals(u.getScheme())) && u.getHost() != null) {
        return u;
      }
    } catch (URISyntaxException e) {
      // reported below
    }
    throw new IllegalArgumentException(name + ": \"" + text + "\" is not a URL like http://sibyl:8321");
  }

  /** Returns the name that OpenTelemetry's Java agent and SDK would use, too. */
  private static String service(String argument) {
    String name = first(argument, System.getProperty("otel.service.name"), System.getenv("OTEL_SERVICE_NAME"), ofResource());
    if (name == null) {
      throw new IllegalArgumentException("service: missing: give service:NAME, or set OTEL_SERVICE_NAME as for OpenTelemetry");
    }
    if (!Limits.isName(name) || name.length() > Limits.TEXT / 2) {
      throw new IllegalArgumentException("service: \"" + name + "\" is not a name of at most " + Limits.TEXT / 2 + " printable characters");
    }
    return name;
  }

  private static String ofResource() {
    String attributes = first(System.getProperty("otel.resource.attributes"), System.getenv("OTEL_RESOURCE_ATTRIBUTES"));
    for (String part : attributes == null ? new String[0] : attributes.split(",")) {
      if (part.trim().startsWith("service.name=")) {
        return part.trim().substring("service.name=".length());
      }
    }
    return null;
  }

  private static String first(String... values) {
    for (String v : values) {
      if (v != null && !v.isEmpty()) {
        return v;
      }
    }
    return null;
  }
}
