package io.github.sibyltrace.agent.profile;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.sibyltrace.agent.Arguments;
import org.junit.jupiter.api.Test;

class ProfilerOptionsTest {
  private static ProfilerOptions parse(String text) {
    return ProfilerOptions.of(Arguments.parse(text));
  }

  @Test
  void choosesWhatToMeasure() {
    assertFalse(parse("p:a").callsOnly);
    assertFalse(parse("p:a#measure:all#t:b").callsOnly);
    assertTrue(parse("p:a#measure:calls").callsOnly);
  }

  @Test
  void refusesWhatNeedsCallers() {
    for (String more : new String[] {"measure:time", "measure:calls#trace:b", "measure:calls#format:folded"}) {
      String got = assertThrows(IllegalArgumentException.class, () -> parse("p:a#" + more)).getMessage();
      assertTrue(got.startsWith("measure: "), got);
    }
  }
}
