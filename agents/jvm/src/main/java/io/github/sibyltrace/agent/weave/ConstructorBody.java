package io.github.sibyltrace.agent.weave;

import static org.objectweb.asm.Opcodes.*;

import org.objectweb.asm.MethodVisitor;

/**
 * Reports the object to the bridge after the call of the superclass's constructor. Constructors that call another one of
 * their class report nothing: that one does.
 */
final class ConstructorBody extends MethodVisitor {
  private final Hook hook;
  private final String owner;
  private final String parent;
  private int unfinished; // objects created for the arguments of the call
  private boolean called;

  ConstructorBody(MethodVisitor next, Hook hook, String owner, String parent) {
    super(Weave.API, next);
    this.hook = hook;
    this.owner = owner;
    this.parent = parent;
  }

  @Override
  public void visitTypeInsn(int opcode, String type) {
    if (opcode == NEW) {
      unfinished++;
    }
    super.visitTypeInsn(opcode, type);
  }

  @Override
  public void visitMethodInsn(int opcode, String of, String name, String descriptor, boolean isInterface) {
    super.visitMethodInsn(opcode, of, name, descriptor, isInterface);
    if (called || opcode != INVOKESPECIAL || !name.equals("<init>")) {
      return;
    }
    if (unfinished > 0) {
      unfinished--;
      return;
    }
    called = true;
    if (of.equals(parent) && !of.equals(owner)) {
      mv.visitVarInsn(ALOAD, 0);
      Weave.push(mv, hook.probe);
      mv.visitMethodInsn(INVOKESTATIC, Weave.BRIDGE, "constructed", "(Ljava/lang/Object;I)V", false);
    }
  }

  @Override
  public void visitMaxs(int stack, int locals) {
    super.visitMaxs(stack + 2, locals);
  }
}
