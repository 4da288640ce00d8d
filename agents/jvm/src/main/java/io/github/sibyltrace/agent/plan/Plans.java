package io.github.sibyltrace.agent.plan;

import java.util.Set;
import java.util.TreeSet;

/** The current plan, and the previous one for the requests that began under it. */
public final class Plans {
  public static final Plans NONE = new Plans(null, null);

  public final Plan current; // null: only the baseline is enabled
  private final Plan previous; // null: none

  private Plans(Plan current, Plan previous) {
    this.current = current;
    this.previous = previous;
  }

  /** Returns the plans after p became the current one. */
  public Plans with(Plan p) {
    if (p == null) {
      return NONE;
    }
    return new Plans(p, current != null && current.version == p.version ? previous : current);
  }

  Plan of(long version) {
    if (current != null && current.version == version) {
      return current;
    }
    return previous != null && previous.version == version ? previous : null;
  }

  /** Returns the IDs of the tracepoints that any arm of the current plan enables. */
  public Set<String> enabled() {
    Set<String> ids = new TreeSet<>();
    if (current != null) {
      current.arms.forEach(a -> ids.addAll(a.enabled.keySet()));
    }
    return ids;
  }
}
