package io.github.sibyltrace.agent.profile;

import com.grack.nanojson.JsonStringWriter;
import com.grack.nanojson.JsonWriter;
import java.util.List;
import java.util.Locale;
import java.util.TreeMap;

/** Formats profiles. */
final class Report {
  private Report() {}

  /**
   * Formats a profile.
   *
   * @param source who measured it
   * @param top entries of each list
   */
  static String format(Profile p, String source, ProfilerOptions options, int top) {
    switch (options.format) {
      case "json":
        return json(p, source, options.callsOnly, top);
      case "folded":
        return folded(p);
      default:
        return options.callsOnly ? calls(p, source, top) : text(p, top);
    }
  }

  private static String text(Profile p, int top) {
    StringBuilder b = new StringBuilder();
    b.append(String.format(Locale.ROOT, "profile of %.1f s, %d methods, %d classes of objects\n", p.seconds, p.methods.size(), p.objects.size()));
    methods(b, "methods by own time", p.topMethods(m -> m.own, top));
    methods(b, "methods by total time", p.topMethods(m -> m.total, top));
    methods(b, "methods by calls", p.topMethods(m -> m.calls, top));
    b.append(String.format("%15s  objects constructed\n", "count"));
    for (Profile.Objects o : p.topObjects(top)) {
      b.append(String.format("%15d  %s\n", o.count, o.name));
    }
    return b.append('\n').toString();
  }

  private static void methods(StringBuilder b, String title, List<Profile.Method> list) {
    b.append(String.format("%15s %15s %15s  %s\n", "own µs", "total µs", "calls", title));
    for (Profile.Method m : list) {
      b.append(String.format("%15d %15d %15d  %s\n", m.own / 1000, m.total / 1000, m.calls, m.name));
    }
  }

  private static String calls(Profile p, String source, int top) {
    StringBuilder b = new StringBuilder();
    b.append(String.format(Locale.ROOT, "profile of %.1f s, %d methods, measured by %s\n", p.seconds, p.methods.size(), source));
    calls(b, "methods by total time", p.topMethods(m -> m.total, top));
    calls(b, "methods by calls", p.topMethods(m -> m.calls, top));
    return b.append('\n').toString();
  }

  private static void calls(StringBuilder b, String title, List<Profile.Method> list) {
    b.append(String.format("%15s %15s  %s\n", "total µs", "calls", title));
    for (Profile.Method m : list) {
      b.append(String.format("%15d %15d  %s\n", m.total / 1000, m.calls, m.name));
    }
  }

  private static String json(Profile p, String source, boolean callsOnly, int top) {
    JsonStringWriter w = JsonWriter.string().object().value("seconds", p.seconds).value("source", source).array("methods");
    for (Profile.Method m : p.topMethods(x -> callsOnly ? x.total : x.own, top)) {
      w.object().value("method", m.name).value("calls", m.calls);
      if (!callsOnly) {
        w.value("own_ns", m.own);
      }
      w.value("total_ns", m.total).end();
    }
    if (callsOnly) {
      return w.end().end().done() + "\n";
    }
    w.end().array("objects");
    for (Profile.Objects o : p.topObjects(top)) {
      w.object().value("class", o.name).value("count", o.count).end();
    }
    return w.end().end().done() + "\n";
  }

  /** Returns a line for each stack with its own µs, as flame graphs need them. */
  private static String folded(Profile p) {
    StringBuilder b = new StringBuilder();
    new TreeMap<>(p.stacks).forEach((stack, nanos) -> b.append(stack).append(' ').append(nanos / 1000).append('\n'));
    return b.toString();
  }
}
