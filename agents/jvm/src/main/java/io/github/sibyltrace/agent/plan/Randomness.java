package io.github.sibyltrace.agent.plan;

/** Uniformly distributed values that all agents derive from the trace ID of a request. */
final class Randomness {
  private Randomness() {}

  /**
   * Returns the value for a request.
   *
   * @param traceId 32 hexadecimal digits
   */
  static long of(String traceId) {
    return mix(Long.parseUnsignedLong(traceId, 0, 16, 16) ^ mix(Long.parseUnsignedLong(traceId, 16, 32, 16)));
  }

  /** Reports whether a tracepoint with the given rate is enabled for the request. */
  static boolean passes(long randomness, double rate) {
    return rate >= 1 || unit(mix(randomness)) < rate;
  }

  /** Maps a value to [0, 1). */
  static double unit(long x) {
    return (x >>> 11) * 0x1p-53;
  }

  /** One step of SplitMix64. */
  private static long mix(long x) {
    x += 0x9e3779b97f4a7c15L;
    x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
    x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
    return x ^ x >>> 31;
  }
}
