package io.github.sibyltrace.agent.weave;

import static org.objectweb.asm.Opcodes.*;

import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;

/** Adds code to the beginning of a method that may return early. */
abstract class EarlyReturn extends MethodVisitor {
  private final Object[] locals;

  /**
   * Begins a method.
   *
   * @param locals the types of the method's local variables at its entry, as frames have them
   */
  EarlyReturn(MethodVisitor next, Object... locals) {
    super(Weave.API, next);
    this.locals = locals;
  }

  /** Writes the code, which uses at most 6 slots of the stack. It returns from the method, or jumps to the label. */
  abstract void begin(Label others);

  @Override
  public final void visitCode() {
    super.visitCode();
    Label others = new Label();
    begin(others);
    mv.visitLabel(others);
    mv.visitFrame(F_NEW, locals.length, locals, 0, new Object[0]);
    mv.visitInsn(NOP); // the first instruction of the method may have a frame, too
  }

  @Override
  public final void visitMaxs(int stack, int size) {
    super.visitMaxs(Math.max(stack, 6), size);
  }
}
