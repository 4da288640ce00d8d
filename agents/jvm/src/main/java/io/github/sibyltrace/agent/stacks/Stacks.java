package io.github.sibyltrace.agent.stacks;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The calling tree of the slow requests of an operation. */
public final class Stacks {
  /** All calls of a tracepoint in the same calling context. */
  public static final class Frame {
    public final String id; // of the tracepoint; null: the operation itself
    public final int caller; // index
    private long own;
    private final Map<String, Integer> callees = new HashMap<>(); // indices by ID

    private Frame(String id, int caller) {
      this.id = id;
      this.caller = caller;
    }

    /** Returns the time outside of other frames in nanoseconds. */
    public long nanos() {
      return Math.min(own, MAX_NANOS);
    }
  }

  private static final int MAX_FRAMES = 512;
  private static final long MAX_NANOS = 1_000_000_000_000_000L; // as in agents/tracepoint/protocol/limits.go

  public final String operation;
  public final String kind;
  public final int requests;
  public final List<Frame> frames = new ArrayList<>(); // callers before the frames that they call

  /** Adds up the stacks of requests. */
  Stacks(String operation, String kind, List<Served> requests) {
    this.operation = operation;
    this.kind = kind;
    this.requests = requests.size();
    frames.add(new Frame(null, 0));
    for (Served r : requests) {
      long rest = r.nanos(); // no thread worked for the request, or not in a tracepoint
      for (Map.Entry<List<String>, Long> s : r.stacks.entrySet()) {
        frames.get(find(s.getKey())).own += s.getValue();
        rest -= s.getValue();
      }
      frames.get(0).own += Math.max(0, rest);
    }
  }

  /** Returns the index of the innermost frame of a stack. If there is no room for it, its time belongs to its caller. */
  private int find(List<String> stack) {
    int at = 0;
    for (String id : stack) {
      Integer next = frames.get(at).callees.get(id);
      if (next == null) {
        if (frames.size() == MAX_FRAMES) {
          return at;
        }
        next = frames.size();
        frames.get(at).callees.put(id, next);
        frames.add(new Frame(id, at));
      }
      at = next;
    }
    return at;
  }
}
