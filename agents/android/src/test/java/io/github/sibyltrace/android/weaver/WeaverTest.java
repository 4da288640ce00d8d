package io.github.sibyltrace.android.weaver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import app.Client;
import app.Library;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

class WeaverTest {
  private static final String RULES =
      "wrap    app.Library+#load(java.lang.String,int)  app.Wrappers.*\n"
          + "wrap    app.Library#count                        app.Wrappers.*\n"
          + "replace app.Library#trace                        app.Wrappers.nothing\n"
          + "bracket app.Library#<init>(java.lang.String)     app.Wrappers.make\n";

  @Test
  void wrapsReplacesAndBracketsCalls() throws Exception {
    Woven w = new Woven(Client.class, RULES);
    @SuppressWarnings("unchecked")
    Supplier<String> client = (Supplier<String>) w.load().getConstructor().newInstance();
    Library.LOG.clear();
    assertEquals("below x3", client.get());
    assertEquals(List.of("begin", "new text", "end", "wrapper", "count", "new default", "wrapper", "load x"), Library.LOG);
  }

  @Test
  void wrapsMethodReferences() throws Exception {
    Woven w = new Woven(Client.class, RULES);
    Library.LOG.clear();
    assertEquals("y12true", w.load().getMethod("references").invoke(null));
    assertEquals(List.of("new default", "wrapper", "load y", "wrapper", "count", "new z"), Library.LOG);
  }

  @Test
  void refusesReferencesThatTheJvmWouldNotLink() throws Exception {
    Woven w = new Woven(Client.class, RULES);
    assertEquals("below y1", w.load().getMethod("other").invoke(null));
    assertTrue(w.report.refusals.toString().contains("app.Client: a reference to app.Library$Below.load has a receiver of another type"), w.report.refusals.toString());
  }

  @Test
  void leavesCallsOfSuper() throws Exception {
    assertEquals(List.of(), new Woven(Library.Below.class, RULES).report.decisions);
  }

  @Test
  void writesTheExpectedCode() throws Exception {
    Woven w = new Woven(Client.class, RULES + "around app.Client+#get() task\nmethod app.*");
    Path golden = Path.of("src/test/resources/io/github/sibyltrace/android/weaver/Client.txt");
    if (Boolean.getBoolean("rewrite")) {
      Files.writeString(golden, w.text());
    }
    assertEquals(Files.readString(golden), w.text());
    assertEquals(
        "0\ttask\tshop/app.Client.get()\n1\tmethod\tshop/app.Client.references()\n2\tmethod\tshop/app.Client.other()\n3\tmethod\tshop/app.Client.compute(int)\n",
        w.catalogue.toString());
  }

  @Test
  void neverWins() throws Exception {
    Woven w = new Woven(Client.class, "method app.*\n" + RULES + "never app.Client");
    assertEquals(List.of(), w.report.decisions);
    assertEquals(0, w.report.changed);
  }

  @Test
  void weavesOnce() throws Exception {
    Woven w = new Woven(Client.class, RULES + "method app.*");
    assertSame(w.bytes, w.weaver.weave("test", w.bytes));
    assertEquals(1, w.report.again);
  }

  @Test
  void leavesClassesWithoutMatches() throws Exception {
    byte[] original = Woven.classFile("app/Client");
    Woven w = new Woven(Client.class, "");
    assertSame(original, w.weaver.weave("test", original));
  }

  @Test
  void refusesWhatItCannotRead() throws Exception {
    Woven w = new Woven(Client.class, RULES);
    byte[] broken = {1, 2, 3};
    assertSame(broken, w.weaver.weave("a/B.class", broken));
    assertTrue(w.report.refusals.stream().anyMatch(r -> r.startsWith("a/B.class: ")), w.report.refusals.toString());
  }

  /** Kotlin's inlined withLock unlocks in a part of the method that its own handler does not cover. */
  @Test
  void refusesMethodsThatWouldLeaveMonitorsLocked() throws Exception {
    ClassWriter c = new ClassWriter(ClassWriter.COMPUTE_FRAMES);
    c.visit(Opcodes.V1_8, Opcodes.ACC_PUBLIC, "app/Locking", null, "java/lang/Object", null);
    for (String name : new String[] {"before", "locking", "after"}) {
      MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC | Opcodes.ACC_STATIC, name, "(Ljava/lang/Object;)V", null, null);
      m.visitCode();
      if (name.equals("locking")) {
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitInsn(Opcodes.MONITORENTER);
      }
      m.visitVarInsn(Opcodes.ALOAD, 0);
      m.visitMethodInsn(Opcodes.INVOKEVIRTUAL, "java/lang/Object", "hashCode", "()I", false);
      m.visitInsn(Opcodes.POP);
      if (name.equals("locking")) {
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitInsn(Opcodes.MONITOREXIT);
      }
      m.visitInsn(Opcodes.RETURN);
      m.visitMaxs(0, 0);
      m.visitEnd();
    }
    c.visitEnd();
    Woven w = new Woven(Client.class, "method app.Locking");
    w.weaver.weave("test", c.toByteArray());
    assertEquals(List.of("shop/app.Locking.locking(Object): monitors differ between ways to an instruction, to which Android's runtime objects"), w.report.refusals);
    assertEquals("0\tmethod\tshop/app.Locking.before(Object)\n1\tmethod\tshop/app.Locking.after(Object)\n", w.catalogue.toString());
  }

  @Test
  void refusesMethodsThatWouldBeTooLarge() throws Exception {
    ClassWriter c = new ClassWriter(0);
    c.visit(Opcodes.V1_8, Opcodes.ACC_PUBLIC, "app/Large", null, "java/lang/Object", null);
    MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC | Opcodes.ACC_STATIC, "large", "()V", null, null);
    m.visitCode();
    m.visitMethodInsn(Opcodes.INVOKESTATIC, "java/lang/System", "gc", "()V", false);
    for (int i = 0; i < 65_525; i++) {
      m.visitInsn(Opcodes.NOP);
    }
    m.visitInsn(Opcodes.RETURN);
    m.visitMaxs(0, 0);
    m.visitEnd();
    c.visitEnd();
    Woven w = new Woven(Client.class, "method app.Large");
    byte[] large = c.toByteArray();
    assertSame(large, w.weaver.weave("test", large));
    assertEquals(List.of("shop/app.Large.large(): it would be larger than 64 KB"), w.report.refusals);
  }

  @Test
  void refusesClassesOfJava5() throws Exception {
    ClassWriter c = new ClassWriter(0);
    c.visit(Opcodes.V1_5, Opcodes.ACC_PUBLIC, "app/Old", null, "java/lang/Object", null);
    MethodVisitor m = c.visitMethod(Opcodes.ACC_STATIC, "m", "()V", null, null);
    m.visitCode();
    m.visitInsn(Opcodes.RETURN);
    m.visitMaxs(0, 0);
    m.visitEnd();
    Woven w = new Woven(Client.class, "method app.*");
    w.weaver.weave("test", c.toByteArray());
    assertEquals(List.of("app.Old: compiled for Java 5 or older"), w.report.refusals);
  }
}
