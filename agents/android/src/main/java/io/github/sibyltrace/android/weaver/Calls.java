package io.github.sibyltrace.android.weaver;

import io.github.sibyltrace.agent.weave.Weave;
import java.util.function.Consumer;
import org.objectweb.asm.Handle;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Sends the calls in a method to the wrappers of the rules. A wrapper is a static method that takes the receiver first, so
 * that only the instruction changes, and neither frames nor the size of the stack. Calls of super and {@code new} stay.
 */
final class Calls extends MethodVisitor {
  private static final String LAMBDAS = "java/lang/invoke/LambdaMetafactory";

  private final Rules rules;
  private final Consumer<String> changed; // receives each rule that was applied
  private final Consumer<String> refused; // receives each reason not to apply one

  Calls(MethodVisitor next, Rules rules, Consumer<String> changed, Consumer<String> refused) {
    super(Weave.API, next);
    this.rules = rules;
    this.changed = changed;
    this.refused = refused;
  }

  @Override
  public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
    Rule r = rule(owner, name, descriptor);
    if (r == null || opcode == Opcodes.INVOKESPECIAL && r.kind != Rule.Kind.BRACKET) {
      super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
      return;
    }
    changed.accept(r.text);
    if (r.kind == Rule.Kind.BRACKET) {
      bracket(r, "Begins");
      super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
      bracket(r, "Ends");
      return;
    }
    String to = opcode == Opcodes.INVOKESTATIC ? descriptor : withReceiver(r, owner, descriptor);
    super.visitMethodInsn(Opcodes.INVOKESTATIC, r.targetClass(), r.targetMethod(name), to, false);
  }

  private void bracket(Rule r, String suffix) {
    super.visitMethodInsn(Opcodes.INVOKESTATIC, r.targetClass(), r.targetMethod("") + suffix, "()V", false);
  }

  private Rule rule(String owner, String name, String descriptor) {
    return owner.startsWith("[") ? null : rules.ofCall(owner.replace('/', '.'), name, descriptor);
  }

  private String withReceiver(Rule r, String owner, String descriptor) {
    return "(L" + r.receiver(owner.replace('/', '.'), rules.types).replace('.', '/') + ";" + descriptor.substring(1);
  }

  @Override
  public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
    if (bootstrap.getOwner().equals(LAMBDAS) && arguments.length > 1 && arguments[1] instanceof Handle) {
      arguments = arguments.clone();
      arguments[1] = wrapped((Handle) arguments[1], descriptor);
    }
    super.visitInvokeDynamicInsn(name, descriptor, bootstrap, arguments);
  }

  /** Returns the wrapper of a method reference such as {@code url::openConnection}, or the method itself. */
  private Handle wrapped(Handle h, String descriptor) {
    int tag = h.getTag();
    boolean isStatic = tag == Opcodes.H_INVOKESTATIC;
    if (!isStatic && tag != Opcodes.H_INVOKEVIRTUAL && tag != Opcodes.H_INVOKEINTERFACE) {
      return h;
    }
    Rule r = rule(h.getOwner(), h.getName(), h.getDesc());
    if (r == null || r.kind == Rule.Kind.BRACKET) {
      return h;
    }
    String to = isStatic ? h.getDesc() : withReceiver(r, h.getOwner(), h.getDesc());
    Type[] captured = Type.getArgumentTypes(descriptor);
    if (!isStatic && captured.length > 0 && !captured[0].equals(Type.getArgumentTypes(to)[0])) { // the JVM would refuse the reference
      refused.accept("a reference to " + h.getOwner().replace('/', '.') + "." + h.getName() + " has a receiver of another type than " + r.text + ": write a lambda");
      return h;
    }
    changed.accept(r.text);
    return new Handle(Opcodes.H_INVOKESTATIC, r.targetClass(), r.targetMethod(h.getName()), to, false);
  }
}
