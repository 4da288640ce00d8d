package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.AnnotationVisitor;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;

class MarkTest {
  @Deprecated
  static final class Marked {
    int twice(int x) {
      return 2 * x;
    }
  }

  @Test
  void addsAnAnnotationThatReflectionLeavesOut() throws Exception {
    byte[] marked = Mark.apply(ClassFile.read(Marked.class));
    assertEquals(List.of("Ljava/lang/Deprecated;", "L" + Mark.NAME.replace('.', '/') + ";"), annotations(marked));
    Class<?> c = new Loader().define(marked);
    assertArrayEquals(Marked.class.getAnnotations(), c.getAnnotations());
    assertEquals(1, c.getDeclaredMethods().length);
  }

  private static List<String> annotations(byte[] classFile) throws IOException {
    List<String> all = new ArrayList<>();
    new ClassReader(classFile)
        .accept(
            new ClassVisitor(Weave.API) {
              @Override
              public AnnotationVisitor visitAnnotation(String descriptor, boolean visible) {
                all.add(descriptor);
                return null;
              }
            },
            0);
    return all;
  }

  private static final class Loader extends ClassLoader {
    Class<?> define(byte[] classFile) {
      return defineClass(Marked.class.getName(), classFile, 0, classFile.length);
    }
  }
}
