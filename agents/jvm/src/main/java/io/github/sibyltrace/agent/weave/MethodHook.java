package io.github.sibyltrace.agent.weave;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;

/** Changes instructions of methods, but no frames. */
interface MethodHook {
  /** Returns the visitor of a method, which passes its instructions on to next; next itself if the method stays as it is. */
  MethodVisitor visit(MethodVisitor next, String name, String descriptor);

  /** Returns the transformed class. */
  static byte[] apply(byte[] classFile, MethodHook hook) {
    ClassReader reader = new ClassReader(classFile);
    ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
    reader.accept(
        new ClassVisitor(Weave.API, writer) {
          @Override
          public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
            return hook.visit(super.visitMethod(access, name, descriptor, signature, exceptions), name, descriptor);
          }
        },
        0);
    return writer.toByteArray();
  }
}
