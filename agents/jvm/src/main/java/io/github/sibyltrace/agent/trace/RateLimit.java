package io.github.sibyltrace.agent.trace;

import java.util.concurrent.atomic.AtomicLong;

/** Allows a number of events in a second, and at most twice as many in the worst second: a safeguard, not a measure. */
final class RateLimit {
  private static final long SECOND = 1_000_000_000;

  private final int perSecond;
  private final AtomicLong used = new AtomicLong(); // since the time below
  private volatile long since = System.nanoTime();

  RateLimit(int perSecond) {
    this.perSecond = perSecond;
  }

  /** Counts an event and reports whether it is allowed. It reads the clock only if the count says no. */
  boolean allows() {
    return used.incrementAndGet() <= perSecond || restart();
  }

  /** Returns the events since the count began. */
  long used() {
    return used.get();
  }

  /** Begins to count again, with one event, and reports true if a second has passed. */
  boolean restart() {
    long now = System.nanoTime();
    if (now - since < SECOND) {
      return false;
    }
    since = now;
    used.set(1);
    return true;
  }
}
