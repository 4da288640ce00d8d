package io.github.sibyltrace.agent;

import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.control.Follower;
import io.github.sibyltrace.agent.control.Settings;
import io.github.sibyltrace.agent.own.Exporter;
import io.github.sibyltrace.agent.own.OwnSpans;
import io.github.sibyltrace.agent.profile.Profiler;
import io.github.sibyltrace.agent.profile.ProfilerOptions;
import io.github.sibyltrace.agent.trace.Otel;
import io.github.sibyltrace.agent.trace.Registry;
import java.lang.instrument.Instrumentation;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.jar.JarFile;

/** Starts the profiler or the agent of a Sibyl service, as the arguments say. */
public final class Agent {
  /** Holds why the agent that was loaded last did not start, for the program that attached it; empty: it started. */
  private static final String ERROR_PROPERTY = "sibyl.agent.error";

  private static final AtomicBoolean connected = new AtomicBoolean();

  private Agent() {}

  /**
   * Starts what the arguments name. Errors are logged: the application runs on without the agent.
   *
   * @param arguments see {@link Arguments}; may be null
   * @param jar the agent's own jar
   */
  public static void start(String arguments, Instrumentation instrumentation, JarFile jar) {
    Log log = new Log(System.err, Log.Level.WARN);
    String error = "";
    try {
      Arguments a = Arguments.parse(arguments == null ? "" : arguments);
      log.setLevel(a.level());
      if (a.has("p", "classes")) {
        Profiler.start(ProfilerOptions.of(a), instrumentation, log);
      } else if (a.has("endpoint")) {
        Classifier classifier = Classifier.ofProcess(jar, a.text("main"));
        log.info(classifier.beginning());
        connect(new Settings(a, classifier), instrumentation, jar, log);
      } else {
        throw new IllegalArgumentException("nothing to do: give p:REGEXP for a profile or endpoint:URL for a Sibyl service");
      }
    } catch (IllegalArgumentException e) {
      error = e.getMessage();
      log.error(error);
    } catch (Throwable t) {
      error = t.toString();
      log.error("cannot start", t);
    }
    System.setProperty(ERROR_PROPERTY, error);
  }

  private static void connect(Settings s, Instrumentation instrumentation, JarFile jar, Log log) {
    if (connected.getAndSet(true)) {
      throw new IllegalArgumentException("this JVM is connected with a Sibyl service already");
    }
    Otel otel = new Otel(jar, new OwnSpans(new Exporter(s.otlp, s.resource, log)), log);
    Registry registry = new Registry(s.service, s.own, s.isEntry, s.spansPerSecond, instrumentation, otel, log);
    registry.start();
    new Follower(s, registry, log).start();
  }
}
