package io.github.sibyltrace.agent.trace;

import java.util.concurrent.atomic.AtomicLong;

/** Allows a number of events in each second. */
final class RateLimit {
  private static final long SECOND = 1_000_000_000;

  private final int perSecond;
  private final AtomicLong used = new AtomicLong();
  private volatile long since = System.nanoTime();

  RateLimit(int perSecond) {
    this.perSecond = perSecond;
  }

  boolean allows() {
    long now = System.nanoTime();
    if (now - since >= SECOND) { // several threads may reset the count: the limit is a safeguard, not a measure
      since = now;
      used.set(0);
    }
    return used.incrementAndGet() <= perSecond;
  }
}
