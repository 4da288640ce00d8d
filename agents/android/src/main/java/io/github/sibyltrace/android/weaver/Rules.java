package io.github.sibyltrace.android.weaver;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The rules of a build: those of its files, then the built-in ones. {@code never} wins, then the first match. */
final class Rules {
  final Types types;
  private final List<Rule> all = new ArrayList<>();
  private final Map<String, Rule> ofCalls = new HashMap<>(); // by the called method, since few methods have most calls; null: no rule

  Rules(Types types) {
    this.types = types;
  }

  /** Adds the rules of a file after those that were added before. */
  void addFile(Path file) throws IOException {
    add(file.toString(), Files.readString(file));
  }

  /** Adds the rules for Android and widely used libraries. */
  void addBuiltIn() throws IOException {
    try (InputStream in = Rules.class.getResourceAsStream("rules.txt")) {
      add("built-in rules", new String(in.readAllBytes(), StandardCharsets.UTF_8));
    }
  }

  /** Adds the rules of a text. The source names it in errors. */
  void add(String source, String text) {
    String[] lines = text.split("\n");
    for (int i = 0; i < lines.length; i++) {
      String line = lines[i].replaceFirst("(^|\\s)#.*", "").trim(); // # inside a word precedes a method
      if (!line.isEmpty()) {
        try {
          all.add(new Rule(line));
        } catch (IllegalArgumentException e) {
          throw new IllegalArgumentException(source + ":" + (i + 1) + ": " + e.getMessage());
        }
      }
    }
  }

  /** Reports whether code of a method stays as it is. */
  boolean never(String className, String method, String descriptor) {
    return all.stream().anyMatch(r -> r.kind == Rule.Kind.NEVER && r.matches(className, method, descriptor, types));
  }

  /** Returns the rule for calls of a method, null if calls stay as they are. */
  Rule ofCall(String className, String method, String descriptor) {
    String key = className + "." + method + descriptor;
    if (!ofCalls.containsKey(key)) {
      ofCalls.put(key, first(true, className, method, descriptor));
    }
    return ofCalls.get(key);
  }

  /** Returns the rule for the body of a method, null if it is no tracepoint. */
  Rule ofBody(String className, String method, String descriptor) {
    return first(false, className, method, descriptor);
  }

  private Rule first(boolean ofCalls, String className, String method, String descriptor) {
    for (Rule r : all) {
      if (r.kind != Rule.Kind.NEVER && r.kind.ofCalls == ofCalls && r.matches(className, method, descriptor, types)) {
        return r;
      }
    }
    return null;
  }
}
