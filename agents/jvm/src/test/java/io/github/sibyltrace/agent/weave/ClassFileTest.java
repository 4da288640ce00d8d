package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.RecordComponentVisitor;
import org.objectweb.asm.TypeReference;

class ClassFileTest {
  static class Subject {
    Subject() {}

    void nested(Map.Entry<String, int[]> e, int... n) {
      Runnable r = () -> nested(e, n);
      r.run();
    }
  }

  @Test
  void listsMethodsWithShortTypes() throws Exception {
    List<String> names = ClassFile.of(Subject.class).methods.stream().map(ClassFile.Method::signature).sorted().collect(Collectors.toList());
    assertEquals(List.of("<init>()", "lambda$nested$0(Map$Entry,int[])", "nested(Map$Entry,int[])"), names);
    assertNull(Refusal.ofLoaded(ClassFile.of(Subject.class), true));
  }

  enum Colour {
    RED;

    int depth = 8;

    int depth() {
      return depth;
    }

    synchronized int locked() {
      return depth;
    }

    void set(int to) {
      depth = to;
    }

    int half() {
      return depth / 2;
    }

    Colour other(String name) {
      return valueOf(name);
    }

    @Override
    public String toString() {
      return "colour";
    }
  }

  @Test
  void findsTrivialMethods() throws Exception {
    List<String> names = ClassFile.of(Colour.class).methods.stream().filter(m -> m.trivial).map(ClassFile.Method::signature).sorted().collect(Collectors.toList());
    assertEquals(List.of("depth()", "set(int)", "toString()", "valueOf(String)", "values()"), names);
  }

  private static ClassWriter writer(int version) {
    ClassWriter w = new ClassWriter(0);
    w.visit(version, Opcodes.ACC_PUBLIC, "a/B", null, "java/lang/Object", null);
    return w;
  }

  private static String refusal(ClassWriter w) {
    return Refusal.ofLoaded(new ClassFile(w.toByteArray()), true);
  }

  @Test
  void refusesWhatTheJvmWouldDamage() {
    assertNull(refusal(writer(Opcodes.V1_8)));
    assertEquals("compiled for Java 5 or older", refusal(writer(Opcodes.V1_5)));

    ClassWriter record = writer(Opcodes.V17);
    RecordComponentVisitor c = record.visitRecordComponent("x", "Ljava/lang/String;", null);
    c.visitTypeAnnotation(TypeReference.newTypeReference(TypeReference.FIELD).getValue(), null, "La/NonNull;", true).visitEnd();
    assertTrue(refusal(record).contains("JDK-8376185"));
  }

  @Test
  void refusesLoadersThatHideTheBridge() throws Exception {
    assertNotNull(Refusal.ofNew(ClassFile.of(Subject.class), false));
  }
}
