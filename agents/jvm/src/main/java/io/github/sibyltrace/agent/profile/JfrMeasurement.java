package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.weave.ClassFile;
import io.github.sibyltrace.agent.weave.Mark;
import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.StringJoiner;
import jdk.jfr.FlightRecorder;
import jdk.jfr.FlightRecorderListener;
import jdk.jfr.Recording;
import jdk.jfr.RecordingState;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedMethod;
import jdk.jfr.consumer.RecordingFile;

/**
 * Counts and times the calls of methods by JFR's method timing (JEP 520). JFR selects classes by their names, which are
 * known of loaded classes only, or by an annotation, which this class adds to chosen classes while they are loaded.
 */
final class JfrMeasurement implements Measurement, ClassFileTransformer, FlightRecorderListener {
  private static final String EVENT = "jdk.MethodTiming";
  private static final Duration KEPT = Duration.ofMinutes(1); // events have the sums since the start: old ones tell nothing more

  private final ProfilerOptions options;
  private final Instrumentation instrumentation;
  private final Log log;
  private final Recording recording = new Recording();
  private final long started = System.nanoTime();
  private Runnable atExit;

  JfrMeasurement(ProfilerOptions options, Instrumentation instrumentation, Log log) {
    this.options = options;
    this.instrumentation = instrumentation;
    this.log = log;
  }

  /** Reports whether the JVM can record events. */
  static boolean isAvailable() {
    return FlightRecorder.isAvailable();
  }

  @Override
  public void start(Runnable atExit) {
    this.atExit = atExit;
    instrumentation.addTransformer(this); // its annotations stay if a class is transformed again
    StringJoiner filter = new StringJoiner(";").add("@" + Mark.NAME);
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (!c.isArray() && options.choose(c.getName(), c.getClassLoader())) {
        filter.add(c.getName());
      }
    }
    FlightRecorder.addListener(this);
    recording.setName("sibyl-profile");
    recording.setMaxAge(KEPT);
    recording.enable(EVENT).with("filter", filter.toString()).with("period", "endChunk");
    recording.start();
  }

  /** When the JVM ends, JFR stops recordings, and then deletes them. */
  @Override
  public void recordingStateChanged(Recording changed) {
    if (changed == recording && changed.getState() == RecordingState.STOPPED) {
      atExit.run();
    }
  }

  @Override
  public byte[] transform(ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    if (internalName == null || redefined != null || !options.choose(internalName.replace('/', '.'), loader)) {
      return null;
    }
    try {
      return Mark.apply(bytes);
    } catch (Throwable t) {
      log.warn("cannot time " + internalName.replace('/', '.') + ": " + t);
      return null;
    }
  }

  @Override
  public Profile profile() throws IOException {
    Path file = Files.createTempFile("sibyl-profile-", ".jfr");
    try {
      recording.dump(file);
      return new Profile(System.nanoTime() - started, read(file).values());
    } finally {
      Files.deleteIfExists(file);
    }
  }

  /** Returns the sums of the methods, by name. */
  private Map<String, Profile.Method> read(Path file) throws IOException {
    Map<String, RecordedEvent> latest = new HashMap<>(); // by class and method: several loaders may have classes of the same name
    try (RecordingFile events = new RecordingFile(file)) {
      while (events.hasMoreEvents()) {
        RecordedEvent e = events.readEvent();
        if (e.getEventType().getName().equals(EVENT)) {
          RecordedMethod m = e.getValue("method");
          latest.put(m.getType().getId() + " " + m.getName() + m.getDescriptor(), e);
        }
      }
    }
    Map<String, Profile.Method> sums = new HashMap<>();
    for (RecordedEvent e : latest.values()) {
      RecordedMethod m = e.getValue("method");
      String type = m.getType().getName();
      long calls = e.getLong("invocations");
      boolean isMethod = !m.getName().startsWith("<"); // not an initialiser
      if (calls > 0 && isMethod && options.classes.matcher(type).matches()) { // others may record, too
        Profile.Method sum = sums.computeIfAbsent(type + "." + ClassFile.signature(m.getName(), m.getDescriptor()), Profile.Method::new);
        sum.calls += calls;
        sum.total += calls * Math.max(0, e.getDuration("average").toNanos()); // negative: the clock is too coarse
      }
    }
    return sums;
  }

  @Override
  public void stop() {
    instrumentation.removeTransformer(this);
    recording.close();
  }
}
