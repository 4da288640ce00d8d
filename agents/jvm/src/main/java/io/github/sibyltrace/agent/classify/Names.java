package io.github.sibyltrace.agent.classify;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Names with a meaning that holds for all Java programs: the lines of names.txt. */
final class Names {
  private final Map<String, Set<String>> kinds = new HashMap<>();

  Names(List<String> lines) {
    for (String line : lines) {
      int space = line.indexOf(' ');
      if (space > 0 && !line.startsWith("#")) {
        kinds.computeIfAbsent(line.substring(0, space), k -> new HashSet<>()).add(line.substring(space + 1).trim());
      }
    }
  }

  private boolean has(String kind, String name) {
    return kinds.getOrDefault(kind, Set.of()).contains(name);
  }

  /** Reports whether a name or one of the prefixes that end before a dot is of the kind. */
  boolean covers(String kind, String name) {
    String rest = name;
    while (!has(kind, rest)) {
      int dot = rest.lastIndexOf('.');
      if (dot < 0) {
        return false;
      }
      rest = rest.substring(0, dot);
    }
    return true;
  }

  /** Returns the number of segments of a package or of a group of Maven that name its owner. */
  int owner(List<String> segments) {
    return Math.min(suffix(segments) + 1, segments.size());
  }

  /** Returns the number of segments that do not tell owners apart. */
  private int suffix(List<String> segments) {
    for (int i = Math.min(2, segments.size()); i > 0; i--) {
      if (has("umbrella", String.join(".", segments.subList(0, i)))) {
        return i;
      }
    }
    if (segments.isEmpty()) {
      return 0;
    }
    boolean country = segments.get(0).length() == 2;
    if (country && segments.size() > 1 && has("second", segments.get(1))) {
      return 2;
    }
    return country || has("top", segments.get(0)) ? 1 : 0;
  }

  /** Returns the prefix of a name that names its owner. */
  String ownerOf(String name) {
    List<String> s = segments(name);
    return String.join(".", s.subList(0, owner(s)));
  }

  static List<String> segments(String name) {
    return name.isEmpty() ? List.of() : Arrays.asList(name.split("\\.", -1));
  }

  /** Returns the words of a name of a jar that tell projects apart. */
  List<String> words(String name) {
    List<String> all = new ArrayList<>();
    for (String word : name.toLowerCase(Locale.ROOT).split("[^a-z]+")) {
      if (word.length() >= 3 && !has("generic", word)) {
        all.add(word);
      }
    }
    return all;
  }
}
