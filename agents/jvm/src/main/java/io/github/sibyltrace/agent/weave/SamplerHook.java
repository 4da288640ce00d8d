package io.github.sibyltrace.agent.weave;

import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Lets the bridge replace the sampler of an OpenTelemetry SDK. A sampler sees each span as it starts, and may add
 * attributes and change the tracestate: it is the place to decide about a request. The SDK asks this class for its
 * sampler whenever a span starts, so that the hook works in an SDK that is already running.
 */
public final class SamplerHook {
  /** The name of the class to transform. */
  public static final String CLASS = "io.opentelemetry.sdk.trace.TracerSharedState";

  private SamplerHook() {}

  /** Returns the transformed class. It is unchanged if it has no such method, as may be in other versions of the SDK. */
  public static byte[] apply(byte[] classFile) {
    return MethodHook.apply(
        classFile,
        (next, name, descriptor) -> name.equals("getSampler") && descriptor.startsWith("()L") ? new Replace(next, Type.getReturnType(descriptor)) : next);
  }

  private static final class Replace extends MethodVisitor {
    private final Type sampler;

    Replace(MethodVisitor next, Type sampler) {
      super(Weave.API, next);
      this.sampler = sampler;
    }

    @Override
    public void visitInsn(int opcode) {
      if (opcode == Opcodes.ARETURN) {
        mv.visitMethodInsn(Opcodes.INVOKESTATIC, Weave.BRIDGE, "sampler", "(Ljava/lang/Object;)Ljava/lang/Object;", false);
        mv.visitTypeInsn(Opcodes.CHECKCAST, sampler.getInternalName());
      }
      super.visitInsn(opcode);
    }
  }
}
