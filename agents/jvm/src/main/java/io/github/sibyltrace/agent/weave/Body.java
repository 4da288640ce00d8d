package io.github.sibyltrace.agent.weave;

import static org.objectweb.asm.Opcodes.*;

import java.util.Arrays;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Type;

/**
 * Adds the entry and the exits of a method:
 *
 * <pre>
 * Object activation = Bridge.enter(probe);
 * try {
 *   …                                   // before each return: Bridge.exit(activation, null)
 * } catch (Throwable t) {
 *   Bridge.exit(activation, t);
 *   throw t;
 * }
 * </pre>
 *
 * The activation gets a local variable above all others, so that no instruction has to be renumbered. The handler
 * declares the other variables unusable: whatever types they have, its frame is valid.
 */
final class Body extends MethodVisitor {
  private static final int EXTRA_STACK = 6; // a long value, twice, boxed, with the activation

  private final Hook hook;
  private final boolean isStatic;
  private final Type[] arguments;
  private final Type returned;
  private final int activation; // index of the local variable
  private final Label start = new Label();

  Body(MethodVisitor next, Hook hook, int access, String descriptor, int locals) {
    super(Weave.API, next);
    this.hook = hook;
    this.isStatic = (access & ACC_STATIC) != 0;
    this.arguments = Type.getArgumentTypes(descriptor);
    this.returned = Type.getReturnType(descriptor);
    this.activation = locals;
  }

  @Override
  public void visitCode() {
    super.visitCode();
    Weave.push(mv, hook.probe);
    bridge("enter", "(I)Ljava/lang/Object;");
    mv.visitVarInsn(ASTORE, activation);
    mv.visitLabel(start);
    if (hook.values) {
      int local = isStatic ? 0 : 1;
      for (int i = 0; i < arguments.length; i++) {
        mv.visitVarInsn(ALOAD, activation);
        Weave.push(mv, i);
        mv.visitVarInsn(arguments[i].getOpcode(ILOAD), local);
        box(arguments[i]);
        bridge("argument", "(Ljava/lang/Object;ILjava/lang/Object;)V");
        local += arguments[i].getSize();
      }
    }
  }

  @Override
  public void visitInsn(int opcode) {
    if (opcode >= IRETURN && opcode <= RETURN) {
      if (hook.values && opcode != RETURN) {
        mv.visitInsn(returned.getSize() == 2 ? DUP2 : DUP);
        box(returned);
        mv.visitVarInsn(ALOAD, activation);
        bridge("result", "(Ljava/lang/Object;Ljava/lang/Object;)V");
      }
      mv.visitVarInsn(ALOAD, activation);
      mv.visitInsn(ACONST_NULL);
      bridge("exit", "(Ljava/lang/Object;Ljava/lang/Throwable;)V");
    }
    super.visitInsn(opcode);
  }

  @Override
  public void visitFrame(int type, int n, Object[] locals, int stacked, Object[] stack) {
    int slots = 0;
    for (int i = 0; i < n; i++) {
      slots += locals[i] == LONG || locals[i] == DOUBLE ? 2 : 1;
    }
    int padding = activation - slots;
    Object[] all = Arrays.copyOf(locals, n + padding + 1);
    Arrays.fill(all, n, n + padding, TOP);
    all[n + padding] = "java/lang/Object";
    super.visitFrame(type, all.length, all, stacked, stack);
  }

  @Override
  public void visitMaxs(int stack, int locals) {
    Label handler = new Label();
    mv.visitTryCatchBlock(start, handler, handler, null); // after those of the method, which take precedence
    mv.visitLabel(handler);
    Object[] unusable = new Object[activation + 1];
    Arrays.fill(unusable, TOP);
    unusable[activation] = "java/lang/Object";
    mv.visitFrame(F_NEW, unusable.length, unusable, 1, new Object[] {"java/lang/Throwable"});
    mv.visitInsn(DUP);
    mv.visitVarInsn(ALOAD, activation);
    mv.visitInsn(SWAP);
    bridge("exit", "(Ljava/lang/Object;Ljava/lang/Throwable;)V");
    mv.visitInsn(ATHROW);
    super.visitMaxs(stack + EXTRA_STACK, activation + 1);
  }

  private void bridge(String method, String descriptor) {
    mv.visitMethodInsn(INVOKESTATIC, Weave.BRIDGE, method, descriptor, false);
  }

  private void box(Type type) {
    String wrapper = wrapper(type);
    if (wrapper != null) {
      mv.visitMethodInsn(INVOKESTATIC, wrapper, "valueOf", "(" + type.getDescriptor() + ")L" + wrapper + ";", false);
    }
  }

  private static String wrapper(Type type) {
    switch (type.getSort()) {
      case Type.BOOLEAN:
        return "java/lang/Boolean";
      case Type.CHAR:
        return "java/lang/Character";
      case Type.BYTE:
        return "java/lang/Byte";
      case Type.SHORT:
        return "java/lang/Short";
      case Type.INT:
        return "java/lang/Integer";
      case Type.LONG:
        return "java/lang/Long";
      case Type.FLOAT:
        return "java/lang/Float";
      case Type.DOUBLE:
        return "java/lang/Double";
      default:
        return null;
    }
  }
}
