package io.github.sibyltrace.agent;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** The arguments of the agent: {@code key:value#key:value}. Most keys have a short and a long name. */
public final class Arguments {
  private static final Set<String> KEYS =
      Set.of(
          "p", "classes", "t", "trace", "d", "debug", "i", "interval", "top", "output", "format", "duration", "measure",
          "endpoint", "opamp", "service", "token", "include", "own", "exclude", "main", "entry", "otlp", "rate", "restore", "variables", "granularity", "waits");

  private final Map<String, String> values;

  private Arguments(Map<String, String> values) {
    this.values = values;
  }

  /** Parses arguments. It throws an {@link IllegalArgumentException} that says what to correct. */
  public static Arguments parse(String text) {
    Map<String, String> values = new LinkedHashMap<>();
    for (String part : text.split("#")) {
      if (part.isEmpty()) {
        continue;
      }
      int colon = part.indexOf(':');
      String key = colon < 0 ? part : part.substring(0, colon);
      if (!KEYS.contains(key)) {
        throw new IllegalArgumentException("unknown argument \"" + key + "\": arguments are like p:REGEXP#i:SECONDS, and are listed in docs/jvm.md");
      }
      if (colon < 0) {
        throw new IllegalArgumentException(key + ": the value is missing: write " + key + ":VALUE");
      }
      if (values.put(key, part.substring(colon + 1)) != null) {
        throw new IllegalArgumentException(key + ": given twice");
      }
    }
    return new Arguments(values);
  }

  /** Returns the value under any of the given names of one argument, null if there is none. */
  public String text(String... names) {
    String found = null;
    for (String name : names) {
      String value = values.get(name);
      if (value != null && found != null) {
        throw new IllegalArgumentException(String.join(" and ", names) + " are the same: give one of them");
      }
      found = value != null ? value : found;
    }
    return found;
  }

  public boolean has(String... names) {
    return text(names) != null;
  }

  /** Returns a regular expression, null if there is none. */
  public Pattern pattern(String... names) {
    String value = text(names);
    try {
      return value == null ? null : Pattern.compile(value);
    } catch (PatternSyntaxException e) {
      throw new IllegalArgumentException(names[0] + ": " + e.getDescription() + " near index " + e.getIndex() + " of \"" + value + "\"");
    }
  }

  /** Returns a number of at least 0. */
  public int number(int otherwise, String... names) {
    String value = text(names);
    if (value == null) {
      return otherwise;
    }
    try {
      int n = Integer.parseInt(value);
      if (n >= 0) {
        return n;
      }
    } catch (NumberFormatException e) {
      // reported below
    }
    throw new IllegalArgumentException(names[0] + ": \"" + value + "\" is not a number of at least 0");
  }

  Log.Level level() {
    String value = text("d", "debug");
    return value == null ? Log.Level.WARN : Log.Level.parse(value);
  }
}
