package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.Arguments;
import io.github.sibyltrace.agent.weave.Refusal;
import java.util.List;
import java.util.regex.Pattern;

/** The options of a profile. */
public final class ProfilerOptions {
  final Pattern classes; // the whole name matches
  final Pattern trace; // part of the name matches; null: no method is traced
  final int interval; // seconds between reports; 0: only at the end
  final int duration; // seconds; 0: until the JVM ends
  final int top; // entries of each list; 0: 5 on the way and 10 at the end
  final String output; // a file; null: the standard error
  final String format;
  final boolean callsOnly; // and their total time: no own time, callers and objects

  private ProfilerOptions(Arguments a) {
    classes = a.pattern("p", "classes");
    trace = a.pattern("t", "trace");
    interval = a.number(0, "i", "interval");
    duration = a.number(0, "duration");
    top = a.number(0, "top");
    output = a.text("output");
    String f = a.text("format");
    format = f == null ? "text" : f;
    if (!List.of("text", "json", "folded").contains(format)) {
      throw new IllegalArgumentException("format: \"" + format + "\" is not text, json or folded");
    }
    String m = a.text("measure");
    callsOnly = "calls".equals(m);
    if (m != null && !callsOnly && !m.equals("all")) {
      throw new IllegalArgumentException("measure: \"" + m + "\" is not all or calls");
    }
    if (callsOnly && (trace != null || format.equals("folded"))) {
      throw new IllegalArgumentException("measure: calls does not measure callers, which trace and format:folded need: leave it out");
    }
  }

  /** Reports whether to measure a class. Those of the JDK and of this agent are never chosen: they run inside the probes, too. */
  boolean choose(String name, ClassLoader loader) {
    return !Refusal.ofPlatform(name, loader) && classes.matcher(name).matches();
  }

  public static ProfilerOptions of(Arguments a) {
    return new ProfilerOptions(a);
  }
}
