package io.github.sibyltrace.agent;

import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.control.Follower;
import io.github.sibyltrace.agent.control.ProcessContext;
import io.github.sibyltrace.agent.control.Settings;
import io.github.sibyltrace.agent.own.Exporter;
import io.github.sibyltrace.agent.own.OwnSpans;
import io.github.sibyltrace.agent.profile.Profiler;
import io.github.sibyltrace.agent.profile.ProfilerOptions;
import io.github.sibyltrace.agent.stacks.StackSampler;
import io.github.sibyltrace.agent.threads.ContextTransformer;
import io.github.sibyltrace.agent.threads.ThreadTable;
import io.github.sibyltrace.agent.trace.Otel;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.util.function.Consumer;

/** Starts the profiler or the agent of a Sibyl service, as the arguments say. */
public final class Agent {
  /** Holds why the agent that was loaded last did not start, for the program that attached it; empty: it started. */
  private static final String ERROR_PROPERTY = "sibyl.agent.error";

  /** Holds the service for which this JVM is connected. */
  private static final String SERVICE_PROPERTY = "sibyl.agent.service";

  private Agent() {}

  /**
   * Starts what the arguments name. Errors are logged: the application runs on without the agent.
   *
   * @param arguments see {@link Arguments}; may be null
   */
  public static void start(String arguments, Instrumentation instrumentation) {
    Log log = new Log(System.err, Log.Level.WARN);
    String error = "";
    try {
      Arguments a = Arguments.parse(arguments == null ? "" : arguments);
      log.setLevel(a.level());
      if (a.has("p", "classes")) {
        Profiler.start(ProfilerOptions.of(a), instrumentation, log);
      } else if (a.has("endpoint") || a.has("opamp") || a.has("waits")) {
        Classifier classifier = Classifier.ofProcess(a.text("main"));
        log.info(classifier.beginning());
        connect(new Settings(a, classifier), instrumentation, log);
      } else {
        throw new IllegalArgumentException("nothing to do: give p:REGEXP for a profile, endpoint:URL for a Sibyl service, or waits:on for the kernel agent");
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

  private static void connect(Settings s, Instrumentation instrumentation, Log log) {
    String connected = System.setProperty(SERVICE_PROPERTY, s.service);
    if (connected != null) {
      System.setProperty(SERVICE_PROPERTY, connected);
      throw new IllegalArgumentException("this JVM is connected with Sibyl already, as the service " + connected);
    }
    ThreadTable threads = s.waits ? threads(s, log) : null;
    OwnSpans spans = new OwnSpans(new Exporter(s.otlp, s.resource, log), threads);
    Otel otel = new Otel(spans, log);
    Consumer<StackSampler> observe = sampler -> ContextTransformer.start(otel.contexts(threads, sampler), instrumentation, log);
    if (!s.connects()) {
      if (threads != null) {
        observe.accept(null);
      }
      return;
    }
    Registry registry = new Registry(s.service, s.own, s.selection, s.spansPerSecond, s.restoreAfter, instrumentation, otel, log);
    // Otherwise, contexts are observed once the sampler needs them.
    StackSampler sampler = s.samples() ? new StackSampler(registry::tracepointAt, threads == null ? observe : x -> {}) : null;
    if (threads != null) {
      observe.accept(sampler);
    }
    spans.tell(sampler);
    registry.start();
    new Follower(s, registry, sampler, log).start();
  }

  /** Returns the table for the kernel agent, null if it cannot be. */
  private static ThreadTable threads(Settings s, Log log) {
    try {
      return ThreadTable.create(ProcessContext.of(s.resource), log);
    } catch (IOException | RuntimeException e) {
      log.error("waits have no spans: cannot tell them to the kernel agent", e);
      return null;
    }
  }
}
