package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RateLimitTest {
  @Test
  void allowsANumberOfEvents() {
    RateLimit limit = new RateLimit(1000);
    for (int i = 0; i < 1000; i++) {
      assertTrue(limit.allows());
    }
    assertFalse(new RateLimit(0).allows());
  }

  @Test
  void countsForASecond() {
    RateLimit limit = new RateLimit(1000);
    limit.allows();
    limit.allows();
    assertFalse(limit.restart());
    assertEquals(2, limit.used());
  }
}
