package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.github.sibyltrace.agent.TestAgent;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Executable;
import java.lang.reflect.Parameter;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The tests are compiled with -parameters. */
class ParameterNamesTest {
  static class Subject {
    final long base;

    Subject(String first, final int second) {
      base = first.length() + second;
    }

    static int twice(int number) {
      return 2 * number;
    }

    <T> long price(Map<String, T> cart, long... discounts) {
      long sum = base;
      for (long discount : discounts) {
        sum -= discount;
      }
      return sum + cart.size();
    }
  }

  /** Weaves all methods of the subject, or none, as the agent does. */
  private static final class Weaving implements ClassFileTransformer {
    boolean weaves;
    boolean restores = true;
    final ParameterNames names = new ParameterNames();
    Exception failure;

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
      if (redefined != Subject.class) {
        return null;
      }
      try {
        byte[] complete = restores ? names.restore(redefined, bytes) : bytes;
        return weaves ? WeaveTest.weaveAll(complete, 0) : complete;
      } catch (Exception e) {
        failure = e;
        return null;
      }
    }
  }

  private static List<String> names() {
    List<Executable> all = new ArrayList<>(List.of(Subject.class.getDeclaredConstructors()));
    all.addAll(List.of(Subject.class.getDeclaredMethods()));
    List<String> names = new ArrayList<>();
    for (Executable e : all) {
      for (Parameter p : e.getParameters()) {
        names.add(p.isNamePresent() + " " + p);
      }
    }
    names.sort(null);
    return names;
  }

  private static final List<String> WANT =
      List.of("true final int second", "true int number", "true java.lang.String first", "true java.util.Map<java.lang.String, T> cart", "true long... discounts");

  @Test
  void namesSurviveChanges() throws Exception {
    assertEquals(WANT, names());
    Instrumentation i = TestAgent.instrumentation();
    Weaving weaving = new Weaving();
    i.addTransformer(weaving, true);
    try {
      for (int n = 0; n < 40; n++) {
        weaving.weaves = n % 2 == 0;
        i.retransformClasses(Subject.class);
        assertEquals(WANT, names());
        assertEquals(8, new Subject("abc", 5).price(Map.of("x", 1), 1));
      }
      weaving.restores = false;
      weaving.weaves = true;
      i.retransformClasses(Subject.class);
      boolean forgets = Runtime.version().feature() < 19; // or the test would show nothing
      assertEquals(forgets, names().stream().noneMatch(p -> p.startsWith("true")));
      weaving.restores = true;
      weaving.weaves = false;
      i.retransformClasses(Subject.class);
      assertEquals(WANT, names());
    } finally {
      i.removeTransformer(weaving);
    }
    if (weaving.failure != null) {
      throw weaving.failure;
    }
  }

  @Test
  void classesThatAreBeingLoadedStayTheSame() throws Exception {
    byte[] file = ClassFile.read(Subject.class);
    assertSame(file, new ParameterNames().restore(null, file));
  }
}
