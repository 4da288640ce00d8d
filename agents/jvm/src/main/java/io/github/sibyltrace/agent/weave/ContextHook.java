package io.github.sibyltrace.agent.weave;

import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Tells the bridge each context of OpenTelemetry that becomes the current one of a thread. All of them pass a
 * thread-local variable, which the classes here set: when a scope begins, and when it ends.
 */
public final class ContextHook {
  private static final String STORAGE = "io.opentelemetry.context.ThreadLocalContextStorage";

  private ContextHook() {}

  /** Reports whether the hook is for a class: of the application's OpenTelemetry, or of OpenTelemetry's Java agent, which renames it. */
  public static boolean applies(String className) {
    int at = className.indexOf(STORAGE);
    int end = at + STORAGE.length();
    return at >= 0 && (at == 0 || className.charAt(at - 1) == '.') && (end == className.length() || className.charAt(end) == '$');
  }

  /** Returns the transformed class. */
  public static byte[] apply(byte[] classFile) {
    return MethodHook.apply(classFile, (next, name, descriptor) -> new Tell(next));
  }

  private static final class Tell extends MethodVisitor {
    Tell(MethodVisitor next) {
      super(Weave.API, next);
    }

    @Override
    public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
      boolean sets = owner.equals("java/lang/ThreadLocal") && name.equals("set");
      if (sets) {
        super.visitInsn(Opcodes.DUP_X1); // variable, context → context, variable, context
      }
      super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
      if (sets) {
        super.visitMethodInsn(Opcodes.INVOKESTATIC, Weave.BRIDGE, "context", "(Ljava/lang/Object;)V", false);
      }
    }
  }
}
