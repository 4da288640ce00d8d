package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.Log;
import java.io.IOException;
import java.lang.instrument.Instrumentation;

/** Measures the methods of chosen classes and writes reports: on the way, and when the JVM or the duration ends. */
public final class Profiler {
  private static final int TIMING_VERSION = 25; // of Java, in which JFR times methods

  private final ProfilerOptions options;
  private final Measurement measurement;
  private final Output output;
  private final String source;
  private final Log log;
  private final long started = System.nanoTime();
  private final Object reporting = new Object();
  private boolean ended; // guarded by reporting

  private Profiler(ProfilerOptions options, Measurement measurement, Output output, String source, Log log) {
    this.options = options;
    this.measurement = measurement;
    this.output = output;
    this.source = source;
    this.log = log;
  }

  /** Starts a profile. */
  public static void start(ProfilerOptions options, Instrumentation instrumentation, Log log) throws IOException {
    Output output = new Output(options.output);
    String lack = options.callsOnly ? lackOfTiming() : null;
    boolean byJfr = options.callsOnly && lack == null;
    Measurement measurement = byJfr ? new JfrMeasurement(options, instrumentation, log) : new WovenMeasurement(options, instrumentation, output, log);
    String source = byJfr ? "JFR" : lack == null ? "the agent" : "the agent, since " + lack;
    new Profiler(options, measurement, output, source, log).start();
  }

  /** Returns why the JVM cannot time methods itself, null if it can. */
  private static String lackOfTiming() {
    int version = Runtime.version().feature();
    if (version < TIMING_VERSION) {
      return "JFR times methods since Java " + TIMING_VERSION + ", and this is Java " + version;
    }
    if (ModuleLayer.boot().findModule("jdk.jfr").isEmpty()) {
      return "this JVM lacks the module jdk.jfr";
    }
    return JfrMeasurement.isAvailable() ? null : "JFR is not available in this JVM";
  }

  private void start() {
    measurement.start(() -> report(true));
    Thread reporter = new Thread(this::reportRegularly, "sibyl-profile");
    reporter.setDaemon(true);
    reporter.start();
  }

  private void reportRegularly() {
    long pause = options.interval > 0 ? options.interval : options.duration;
    if (pause == 0) {
      return;
    }
    try {
      long end = options.duration > 0 ? started + options.duration * 1_000_000_000L : Long.MAX_VALUE;
      while (true) {
        long left = (end - System.nanoTime()) / 1_000_000;
        Thread.sleep(Math.max(0, Math.min(pause * 1000, left)));
        if (System.nanoTime() >= end) {
          report(true);
          measurement.stop();
          return;
        }
        report(false);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Writes a report, unless the last one was written. It holds no lock while it reads the profile: JFR calls it with a lock of its own. */
  private void report(boolean last) {
    Profile profile = null;
    Exception failure = null;
    try {
      profile = measurement.profile();
    } catch (IOException | RuntimeException e) {
      failure = e;
    }
    synchronized (reporting) {
      if (ended) {
        return;
      }
      if (failure != null) {
        log.error("cannot read the profile", failure);
        return;
      }
      ended = last;
      int top = options.top > 0 ? options.top : last ? 10 : 5;
      output.write(Report.format(profile, source, options, top));
    }
  }
}
