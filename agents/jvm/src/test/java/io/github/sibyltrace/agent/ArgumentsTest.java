package io.github.sibyltrace.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ArgumentsTest {
  @Test
  void parsesShortAndLongNames() {
    Arguments a = Arguments.parse("p:com\\.shop\\..*#trace:pay#i:5#endpoint:http://h:1");
    assertEquals("com\\.shop\\..*", a.pattern("p", "classes").pattern());
    assertEquals("pay", a.pattern("t", "trace").pattern());
    assertEquals(5, a.number(0, "i", "interval"));
    assertEquals("http://h:1", a.text("endpoint"));
    assertNull(a.text("output"));
  }

  @Test
  void saysWhatToCorrect() {
    check("q:1", "unknown argument \"q\"");
    check("p", "p: the value is missing");
    check("p:a#p:b", "p: given twice");
    check("p:a#classes:b", "p and classes are the same");
    check("p:(", "p: Unclosed group");
    check("i:-1", "i: \"-1\" is not a number");
    check("i:x", "i: \"x\" is not a number");
    check("d:loud", "debug: \"loud\" is not error");
  }

  private static void check(String text, String want) {
    String got =
        assertThrows(
                IllegalArgumentException.class,
                () -> {
                  Arguments a = Arguments.parse(text);
                  a.pattern("p", "classes");
                  a.number(0, "i", "interval");
                  a.level();
                })
            .getMessage();
    assertTrue(got.startsWith(want), got);
  }
}
