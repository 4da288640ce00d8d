package io.github.sibyltrace.agent.stacks;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A request in this process, from the start to the end of its first span here, and the stacks that were seen of it. */
public abstract class Served {
  final Object span; // its first one in this process
  final Map<List<String>, Long> stacks = new HashMap<>(); // ns by IDs of tracepoints, outermost first; guarded by the sampler

  protected Served(Object span) {
    this.span = span;
  }

  /** Returns the name of the span, which is final once it has ended. */
  protected abstract String name();

  /** Returns the kind of the span in lower case. */
  protected abstract String kind();

  protected abstract boolean hasEnded();

  /** Returns the duration of the span in nanoseconds, until now if it has not ended. */
  protected abstract long nanos();
}
