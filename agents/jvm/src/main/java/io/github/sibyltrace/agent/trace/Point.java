package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.plan.Tracepoint;
import java.util.concurrent.atomic.LongAdder;

/** A tracepoint that was enabled at least once, with its counts since the agent started. */
public final class Point {
  private static final int MEASURE_EVERY = 256; // hits
  private static final int MISSING_PART = 4; // of the hits may be beyond the limit: a slow method still shows
  private static final long LONGEST_HIT = 1_000_000; // ns; during a longer one the thread was preempted

  public final Tracepoint tracepoint;
  final Variable variable; // null: the tracepoint is a span
  private final Registry registry;
  private final RateLimit limit;
  private final LongAdder hits = new LongAdder();
  private final LongAdder drops = new LongAdder();
  private final LongAdder limited = new LongAdder(); // drops beyond a limit
  private Counts judged = new Counts(0, 0); // at the last judgement
  private final LongAdder nanos = new LongAdder();
  private final LongAdder measured = new LongAdder();

  Point(Tracepoint tracepoint, Variable variable, Registry registry, int perSecond) {
    this.tracepoint = tracepoint;
    this.variable = variable;
    this.registry = registry;
    this.limit = new RateLimit(perSecond);
  }

  /** Counts a hit, and reports whether it may become a span or an attribute. */
  public boolean hit(Request request, boolean sampled) {
    if (!request.enables(tracepoint.id)) {
      return false;
    }
    hits.increment();
    if (sampled && allows()) {
      return true;
    }
    if (sampled) {
      limited.increment();
    }
    drops.increment();
    return false;
  }

  /** Counts of hits of sampled requests. */
  private static final class Counts {
    final long recorded;
    final long limited;

    Counts(long recorded, long limited) {
      this.recorded = recorded;
      this.limited = limited;
    }
  }

  /**
   * Judges the hits since the last call: it returns why too many of them are missing, "" if they are not. What is left of
   * them says little about a request.
   */
  synchronized String judge() {
    long over = limited.sum();
    Counts now = new Counts(Math.max(0, hits.sum() - drops.sum()), over);
    long recorded = now.recorded - judged.recorded;
    long missing = now.limited - judged.limited;
    judged = now;
    return missing * MISSING_PART <= recorded + missing ? "" : missing + " of " + (recorded + missing) + " executions were beyond the limit of spans a second: raise it with rate";
  }

  /** Reports whether the limits allow a span. A tracepoint has its part of the total limit, however often others are hit. */
  private boolean allows() {
    return limit.allows() && (limit.used() <= registry.fairShare() || registry.total.allows() || limit.restart());
  }

  /** Reports whether to measure the cost of the present hit. */
  public boolean measures() {
    return hits.sum() % MEASURE_EVERY == 1;
  }

  /** Adds the measured cost of a hit. */
  public void measured(long ns) {
    if (ns < LONGEST_HIT) {
      nanos.add(ns);
      measured.increment();
    }
  }

  /** Counts a hit that could not become a span. */
  public void drop() {
    drops.increment();
  }

  public Registry registry() {
    return registry;
  }

  public long hits() {
    return hits.sum();
  }

  public long drops() {
    return drops.sum();
  }

  /** Returns the mean cost of the measured hits in nanoseconds; 0: none was measured. */
  public double meanNanos() {
    long n = measured.sum();
    return n == 0 ? 0 : (double) nanos.sum() / n;
  }
}
