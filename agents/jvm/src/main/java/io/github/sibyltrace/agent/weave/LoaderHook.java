package io.github.sibyltrace.agent.weave;

import static org.objectweb.asm.Opcodes.*;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;

/**
 * Makes a class loader find the bridge, whatever it delegates:
 *
 * <pre>
 * Class loadClass(String name, …) {
 *   if (name.startsWith("io.github.sibyltrace.agent.bridge.")) {
 *     return Class.forName(name, false, null); // from the bootstrap class path
 *   }
 *   …
 * </pre>
 */
final class LoaderHook {
  private static final String PREFIX = Weave.BRIDGE.substring(0, Weave.BRIDGE.lastIndexOf('/') + 1).replace('/', '.');

  private LoaderHook() {}

  /** Returns the transformed class, null if it is not a class loader with its own way to load classes. */
  static byte[] apply(byte[] classFile) {
    ClassReader reader = new ClassReader(classFile);
    ClassWriter writer = new ClassWriter(reader, 0);
    Hooks hooks = new Hooks(writer);
    reader.accept(hooks, ClassReader.EXPAND_FRAMES);
    return hooks.found ? writer.toByteArray() : null;
  }

  private static final class Hooks extends ClassVisitor {
    private String owner;
    private boolean framed;
    boolean found;

    Hooks(ClassVisitor next) {
      super(Weave.API, next);
    }

    @Override
    public void visit(int version, int access, String name, String signature, String parent, String[] interfaces) {
      owner = name;
      framed = (version & 0xffff) >= V1_6; // older classes may have no frames, which the hook would need
      super.visit(version, access, name, signature, parent, interfaces);
    }

    @Override
    public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
      MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
      boolean loads = name.equals("loadClass") && (descriptor.equals("(Ljava/lang/String;)Ljava/lang/Class;") || descriptor.equals("(Ljava/lang/String;Z)Ljava/lang/Class;"));
      if (!framed || !loads || (access & (ACC_STATIC | ACC_ABSTRACT | ACC_NATIVE)) != 0) {
        return next;
      }
      found = true;
      return descriptor.contains("Z") ? new Hook(next, owner, "java/lang/String", INTEGER) : new Hook(next, owner, "java/lang/String");
    }
  }

  private static final class Hook extends EarlyReturn {
    Hook(MethodVisitor next, Object... locals) {
      super(next, locals);
    }

    @Override
    void begin(Label others) {
      mv.visitVarInsn(ALOAD, 1);
      mv.visitLdcInsn(PREFIX);
      mv.visitMethodInsn(INVOKEVIRTUAL, "java/lang/String", "startsWith", "(Ljava/lang/String;)Z", false);
      mv.visitJumpInsn(IFEQ, others);
      mv.visitVarInsn(ALOAD, 1);
      mv.visitInsn(ICONST_0);
      mv.visitInsn(ACONST_NULL);
      mv.visitMethodInsn(INVOKESTATIC, "java/lang/Class", "forName", "(Ljava/lang/String;ZLjava/lang/ClassLoader;)Ljava/lang/Class;", false);
      mv.visitInsn(ARETURN);
    }
  }
}
