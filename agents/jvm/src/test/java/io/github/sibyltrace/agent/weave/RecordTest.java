package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.sibyltrace.agent.TestAgent;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Records keep their components, names of parameters and annotations when they are transformed again. */
class RecordTest {
  private static final String SOURCE =
      "package shop;\n"
          + "import java.lang.annotation.*;\n"
          + "import java.util.*;\n"
          + "@Retention(RetentionPolicy.RUNTIME) @interface Name { String value(); }\n"
          + "public record Order<T extends Comparable<T>>(@Name(\"n\") int number, @Deprecated List<? super T> items, long... prices) implements Comparable<Order<T>> {\n"
          + "  public Order {\n"
          + "    if (number < 0) throw new IllegalArgumentException(\"number\");\n"
          + "  }\n"
          + "  public Order(int number) { this(number, List.of()); }\n"
          + "  public long total() { long sum = 0; for (long p : prices) sum += p; return sum; }\n"
          + "  @Override public int compareTo(Order<T> other) { return Integer.compare(number, other.number); }\n"
          + "}\n";

  @TempDir Path dir;

  private Class<?> compile() throws Exception {
    Path source = dir.resolve("Order.java");
    Files.writeString(source, SOURCE);
    assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, "-parameters", "-d", dir.toString(), source.toString()));
    return new URLClassLoader(new URL[] {dir.toUri().toURL()}).loadClass("shop.Order");
  }

  /** Describes a record by all that reflection tells about it, and by what its methods do. */
  private static String describe(Class<?> c) throws Exception {
    StringBuilder b = new StringBuilder(c.toGenericString());
    Object[] components = (Object[]) Class.class.getMethod("getRecordComponents").invoke(c); // since Java 16
    for (Object component : components) {
      Class<?> type = component.getClass();
      b.append('\n').append(component).append(' ').append(type.getMethod("getGenericType").invoke(component)).append(' ');
      b.append(type.getMethod("getGenericSignature").invoke(component)).append(' ').append(type.getMethod("getAccessor").invoke(component));
      b.append(Arrays.toString(((AnnotatedElement) component).getAnnotations()));
    }
    for (Constructor<?> k : c.getDeclaredConstructors()) {
      b.append('\n').append(k.toGenericString()).append(Arrays.toString(k.getParameters())).append(Arrays.deepToString(k.getParameterAnnotations()));
    }
    Method[] methods = c.getDeclaredMethods();
    Arrays.stream(methods).map(m -> m.toGenericString() + Arrays.toString(m.getParameters()) + Arrays.toString(m.getAnnotations())).sorted().forEach(m -> b.append('\n').append(m));
    Object order = c.getConstructor(int.class, List.class, long[].class).newInstance(7, List.of("a"), new long[] {2, 3});
    b.append('\n').append(order.toString().replaceAll("@\\w+", "")).append(order.equals(order)).append(c.getMethod("total").invoke(order));
    return b.toString();
  }

  @Test
  void survivesChanges() throws Exception {
    assumeTrue(Runtime.version().feature() >= 16, "records need Java 16");
    Class<?> c = compile();
    String want = describe(c);
    assertTrue(want.contains("@shop.Name") && want.contains("int number") && want.contains("? super T"), want);
    assertNull(Refusal.ofLoaded(ClassFile.of(c), true));
    ParameterNames names = new ParameterNames();
    names.remember(c);
    AtomicReference<Exception> failure = new AtomicReference<>();
    boolean[] weaves = {false};
    ClassFileTransformer weaving =
        new ClassFileTransformer() {
          @Override
          public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            if (redefined != c) {
              return null;
            }
            try {
              byte[] complete = names.restore(redefined, bytes);
              return weaves[0] ? WeaveTest.weaveAll(complete, 0) : complete;
            } catch (Exception e) {
              failure.set(e);
              return null;
            }
          }
        };
    Instrumentation i = TestAgent.instrumentation();
    i.addTransformer(weaving, true);
    try {
      for (int n = 0; n < 20; n++) {
        weaves[0] = n % 2 == 0;
        i.retransformClasses(c);
        assertEquals(want, describe(c), "after change " + n);
      }
    } finally {
      i.removeTransformer(weaving);
    }
    assertNull(failure.get());
  }
}
