package io.github.sibyltrace.agent.weave;

import java.util.function.Consumer;
import org.objectweb.asm.ConstantDynamic;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Tells whether a method is too simple to ever be slow: its code only moves constants, arguments and fields, or is that
 * which the compiler adds to records.
 */
final class CodeReader extends MethodVisitor {
  private final Consumer<Boolean> result;
  private boolean works; // does more than to move values
  private boolean ofRecord;

  CodeReader(Consumer<Boolean> result, boolean locks) {
    super(Weave.API);
    this.result = result;
    works = locks;
  }

  @Override
  public void visitInsn(int opcode) {
    boolean moves = opcode <= Opcodes.DCONST_1 || opcode >= Opcodes.IRETURN && opcode <= Opcodes.RETURN;
    works |= !moves;
  }

  @Override
  public void visitIntInsn(int opcode, int operand) {
    works |= opcode == Opcodes.NEWARRAY;
  }

  @Override
  public void visitTypeInsn(int opcode, String type) {
    works |= opcode != Opcodes.CHECKCAST;
  }

  @Override
  public void visitLdcInsn(Object constant) {
    works |= constant instanceof ConstantDynamic;
  }

  @Override
  public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
    works = true;
  }

  @Override
  public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
    ofRecord |= bootstrap.getOwner().equals("java/lang/runtime/ObjectMethods");
    works = true;
  }

  @Override
  public void visitJumpInsn(int opcode, Label label) {
    works = true;
  }

  @Override
  public void visitIincInsn(int variable, int increment) {
    works = true;
  }

  @Override
  public void visitTableSwitchInsn(int min, int max, Label otherwise, Label... labels) {
    works = true;
  }

  @Override
  public void visitLookupSwitchInsn(Label otherwise, int[] keys, Label[] labels) {
    works = true;
  }

  @Override
  public void visitMultiANewArrayInsn(String descriptor, int dimensions) {
    works = true;
  }

  @Override
  public void visitEnd() {
    result.accept(!works || ofRecord);
  }
}
