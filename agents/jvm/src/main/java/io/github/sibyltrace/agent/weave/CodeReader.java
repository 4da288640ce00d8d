package io.github.sibyltrace.agent.weave;

import org.objectweb.asm.AnnotationVisitor;
import org.objectweb.asm.ConstantDynamic;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Reads the code of a method: which methods it calls, and whether it is too simple to ever be slow, as it only moves
 * constants, arguments and fields, or is that which the compiler adds to records.
 */
abstract class CodeReader extends MethodVisitor {
  private boolean works; // does more than to move values
  private boolean ofRecord;
  private boolean annotated;
  private int line; // the lowest one; 0: unknown

  CodeReader(boolean locks) {
    super(Weave.API);
    works = locks;
  }

  /**
   * Receives each method that the code calls, or passes to others.
   *
   * @param callee class with dots, name and descriptor
   */
  abstract void calls(String callee, boolean passed);

  /**
   * Receives the result, last.
   *
   * @param line of the source; 0: unknown
   */
  abstract void ends(boolean trivial, boolean annotated, int line);

  private void calls(String owner, String name, String descriptor, boolean passed) {
    calls(owner.replace('/', '.') + "." + name + descriptor, passed);
  }

  private void passes(Object constant) {
    if (constant instanceof Handle) {
      Handle h = (Handle) constant;
      calls(h.getOwner(), h.getName(), h.getDesc(), true);
    }
  }

  @Override
  public AnnotationVisitor visitAnnotation(String descriptor, boolean visible) {
    annotated |= visible;
    return null;
  }

  @Override
  public void visitLineNumber(int number, Label start) {
    line = line == 0 ? number : Math.min(line, number);
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
    passes(constant);
  }

  @Override
  public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
    works = true;
    calls(owner, name, descriptor, false);
  }

  @Override
  public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
    ofRecord |= bootstrap.getOwner().equals("java/lang/runtime/ObjectMethods");
    works = true;
    for (Object a : arguments) {
      passes(a);
    }
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
    ends(!works || ofRecord, annotated, line);
  }
}
