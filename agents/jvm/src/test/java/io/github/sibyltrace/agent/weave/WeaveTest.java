package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.bridge.Probe;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class WeaveTest {
  /** Code to instrument. */
  public static class Subject {
    static class Base {}

    static class Item extends Base {
      Item(int n) {}

      Item() {
        this(new StringBuilder("abc").length());
      }
    }

    public static long sum(byte a, long b, double c, String d) {
      return a + b + (long) c + d.length();
    }

    public String branch(int n) {
      String found = null;
      for (int i = 0; i < n; i++) {
        try {
          if (i == 2) {
            long wide = i * 3L;
            return "wide " + wide;
          }
          found = "i" + i;
        } finally {
          n--;
        }
      }
      return found;
    }

    public static void fail() {
      throw new IllegalStateException("expected");
    }

    public static int construct() {
      new Item(1);
      new Item();
      return 2;
    }
  }

  /** Records all calls of the bridge. */
  private static final class Recorder extends Probe {
    final List<String> events = new ArrayList<>();

    @Override
    public Activation enter() {
      events.add("enter");
      return new Activation() {
        @Override
        public void argument(int index, Object value) {
          events.add(index + "=" + value);
        }

        @Override
        public void result(Object value) {
          events.add("result " + value);
        }

        @Override
        public void exit(Throwable thrown) {
          events.add(thrown == null ? "exit" : "thrown " + thrown.getMessage());
        }
      };
    }

    @Override
    public void constructed(Object object) {
      events.add("constructed " + object.getClass().getSimpleName());
    }
  }

  /** Loads classes of this test with all methods hooked to one probe. */
  private static final class Loader extends ClassLoader {
    private final Map<String, byte[]> woven = new HashMap<>();

    Loader(Probe probe) throws IOException {
      super(WeaveTest.class.getClassLoader());
      int index = Bridge.add(probe);
      for (String name : List.of("", "$Base", "$Item")) {
        String file = Subject.class.getName() + name;
        woven.put(file, weaveAll(read(file), index));
      }
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      byte[] bytes = woven.remove(name);
      return bytes == null ? super.loadClass(name, resolve) : defineClass(name, bytes, 0, bytes.length);
    }
  }

  private static byte[] read(String name) throws IOException {
    try (InputStream in = WeaveTest.class.getClassLoader().getResourceAsStream(name.replace('.', '/') + ".class")) {
      return in.readAllBytes();
    }
  }

  static byte[] weaveAll(byte[] classFile, int probe) {
    Map<String, Hook> hooks = new HashMap<>();
    for (ClassFile.Method m : new ClassFile(classFile).methods) {
      hooks.put(m.name + m.descriptor, new Hook(probe, true));
    }
    return Weave.apply(classFile, hooks);
  }

  private final Recorder recorder = new Recorder();

  private Object call(String method, Object... arguments) throws Exception {
    Class<?> c = new Loader(recorder).loadClass(Subject.class.getName());
    Object instance = c.getConstructor().newInstance();
    recorder.events.clear();
    for (java.lang.reflect.Method m : c.getMethods()) {
      if (m.getName().equals(method)) {
        return m.invoke(instance, arguments);
      }
    }
    throw new NoSuchMethodException(method);
  }

  @Test
  void passesArgumentsAndResult() throws Exception {
    assertEquals(9L, call("sum", (byte) 1, 2L, 3.5, "abc"));
    assertEquals(List.of("enter", "0=1", "1=2", "2=3.5", "3=abc", "result 9", "exit"), recorder.events);
  }

  @Test
  void keepsBranchesAndHandlers() throws Exception {
    assertEquals("wide 6", call("branch", 10));
    assertEquals(List.of("enter", "0=10", "result wide 6", "exit"), recorder.events);
  }

  @Test
  void reportsExceptions() {
    InvocationTargetException e = assertThrows(InvocationTargetException.class, () -> call("fail"));
    assertEquals("expected", e.getCause().getMessage());
    assertEquals(List.of("enter", "thrown expected"), recorder.events);
  }

  @Test
  void reportsEachObjectOnceForEachClass() throws Exception {
    call("construct");
    recorder.events.removeIf(s -> !s.startsWith("constructed"));
    // Base, then Item, for each of the two objects. Probes that count objects compare the class.
    assertEquals(List.of("constructed Item", "constructed Item", "constructed Item", "constructed Item"), recorder.events);
  }

  @Test
  void aFailingProbeChangesNothing() throws Exception {
    Probe failing =
        new Probe() {
          @Override
          public Activation enter() {
            throw new StackOverflowError();
          }
        };
    Class<?> c = new Loader(failing).loadClass(Subject.class.getName());
    assertEquals(2, c.getMethod("construct").invoke(null));
  }

  @Test
  void refusesBrokenClassFiles() {
    assertThrows(RuntimeException.class, () -> weaveAll(new byte[] {(byte) 0xca, (byte) 0xfe, (byte) 0xba, (byte) 0xbe, 0, 0, 0, 61, 0, 9}, 0));
    assertTrue(assertThrows(RuntimeException.class, () -> weaveAll(new byte[0], 0)) != null);
  }
}
