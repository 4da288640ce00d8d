package io.github.sibyltrace.android.weaver;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The tracepoints of a build. Woven code refers to them by number, so that shrinking and renaming change nothing. */
final class Catalogue {
  private final List<String> ids = new ArrayList<>();
  private final List<String> kinds = new ArrayList<>();
  private final Map<String, Integer> numbers = new HashMap<>();

  /** Returns the number of a tracepoint. Methods with the same ID share it: their parameters have the same short types. */
  int number(String id, String kind) {
    return numbers.computeIfAbsent(
        id,
        x -> {
          ids.add(id);
          kinds.add(kind);
          return ids.size() - 1;
        });
  }

  int size() {
    return ids.size();
  }

  /** Removes the tracepoints that were added since the catalogue had this size. */
  void truncate(int size) {
    while (ids.size() > size) {
      numbers.remove(ids.remove(ids.size() - 1));
      kinds.remove(kinds.size() - 1);
    }
  }

  /** Returns a line for each tracepoint: number, kind and ID, separated by tabs. */
  @Override
  public String toString() {
    StringBuilder b = new StringBuilder();
    for (int i = 0; i < ids.size(); i++) {
      b.append(i).append('\t').append(kinds.get(i)).append('\t').append(ids.get(i)).append('\n');
    }
    return b.toString();
  }
}
