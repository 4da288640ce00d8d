package io.github.sibyltrace.agent.weave;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;

/** Marks classes with an annotation by which JFR selects them. Its type does not exist, so that reflection leaves it out. */
public final class Mark {
  /** The name of the annotation. */
  public static final String NAME = "io.github.sibyltrace.agent.Timed";

  private Mark() {}

  /** Returns the class with the annotation. */
  public static byte[] apply(byte[] classFile) {
    ClassReader reader = new ClassReader(classFile);
    ClassWriter writer = new ClassWriter(reader, 0); // copies the methods
    reader.accept(
        new ClassVisitor(Weave.API, writer) {
          @Override
          public void visitEnd() {
            visitAnnotation("L" + NAME.replace('.', '/') + ";", true).visitEnd();
            super.visitEnd();
          }
        },
        0);
    return writer.toByteArray();
  }
}
