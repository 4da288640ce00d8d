package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.sibyltrace.agent.weave.ClassFile;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class VariableTest {
  enum Tier {
    GOLD
  }

  static class Subject {
    Tier order(String customer, char initial, long cents, Double discount, List<String> items, byte[] image, Tier tier, Object other, Thread thread) {
      return tier;
    }

    static void none(double wide, int last) {}
  }

  private static List<String> names(String method) throws Exception {
    ClassFile.Method m = ClassFile.of(Subject.class).methods.stream().filter(x -> x.name.equals(method)).findFirst().get();
    String[] parameters = ClassFile.parameterNames(Subject.class).get(m.name + m.descriptor);
    return Variable.of(m, parameters, type -> ClassFile.isEnum(type, Subject.class.getClassLoader())).stream().map(v -> v.name).collect(Collectors.toList());
  }

  @Test
  void namesWhatCanBeCaptured() throws Exception {
    assertEquals(List.of("customer.length", "cents", "discount", "items.size", "image.length", "tier", "return", "exception"), names("order"));
    assertEquals(List.of("wide", "last", "exception"), names("none"));
  }

  private static Object value(Object of) throws Exception {
    ClassFile.Method m = ClassFile.of(Subject.class).methods.stream().filter(x -> x.name.equals("none")).findFirst().get();
    return Variable.of(m, null, type -> false).get(0).value(of);
  }

  @Test
  void capturesNoText() throws Exception {
    assertEquals(6L, value("Müller"));
    assertNull(value(new StringBuilder("Müller")));
    assertNull(value('M'));
    assertNull(value(null));
    assertNull(value(new Object()));
  }

  @Test
  void capturesNumbersAndConstants() throws Exception {
    assertEquals(7L, value((byte) 7));
    assertEquals(7L, value(7));
    assertEquals(1.5, value(1.5f));
    assertEquals(true, value(true));
    assertEquals("SECONDS", value(TimeUnit.SECONDS));
    assertEquals("GOLD", value(Tier.GOLD));
    assertEquals(3L, value(new int[3]));
    assertEquals(2L, value(List.of("a", "b")));
    assertEquals(1L, value(Map.of("a", "b")));
    assertEquals(1L, value(new ArrayList<>(List.of(1))));
  }

  @Test
  void runsNoCodeOfTheApplication() throws Exception {
    List<String> lazy =
        new AbstractList<>() {
          @Override
          public String get(int i) {
            throw new AssertionError("loads data");
          }

          @Override
          public int size() {
            throw new AssertionError("loads data");
          }
        };
    assertNull(value(lazy));
    assertNull(value(Collections.unmodifiableList(lazy)));
    assertNull(value(Collections.synchronizedList(lazy)));
  }
}
