package io.github.sibyltrace.agent.weave;

import static org.objectweb.asm.Opcodes.*;

import java.util.HashMap;
import java.util.Map;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.FieldVisitor;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Type;

/** Lets the bridge replace spans of an OpenTelemetry SDK before they start. */
public final class SpanHook {
  /** The name of the class to transform. */
  public static final String CLASS = "io.opentelemetry.sdk.trace.SdkSpanBuilder";

  private static final String[] FIELDS = {"parent", "spanName", "spanKind", "instrumentationScopeInfo"};

  private SpanHook() {}

  /** Returns the transformed class. It is unchanged if it lacks a field or the method, as may be in other versions of the SDK. */
  public static byte[] apply(byte[] classFile) {
    ClassReader reader = new ClassReader(classFile);
    Map<String, String> fields = new HashMap<>(); // descriptors by name
    reader.accept(
        new ClassVisitor(Weave.API) {
          @Override
          public FieldVisitor visitField(int access, String name, String descriptor, String signature, Object value) {
            fields.put(name, descriptor);
            return null;
          }
        },
        ClassReader.SKIP_CODE);
    ClassWriter writer = new ClassWriter(reader, 0);
    reader.accept(
        new ClassVisitor(Weave.API, writer) {
          @Override
          public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
            MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
            boolean starts = name.equals("startSpan") && descriptor.startsWith("()L") && (access & ACC_BRIDGE) == 0;
            return starts && fields.keySet().containsAll(java.util.List.of(FIELDS)) ? new Replace(next, reader.getClassName(), fields, Type.getReturnType(descriptor)) : next;
          }
        },
        ClassReader.EXPAND_FRAMES);
    return writer.toByteArray();
  }

  private static final class Replace extends EarlyReturn {
    private final String owner;
    private final Map<String, String> fields;
    private final Type span;

    Replace(MethodVisitor next, String owner, Map<String, String> fields, Type span) {
      super(next, owner);
      this.owner = owner;
      this.fields = fields;
      this.span = span;
    }

    @Override
    void begin(Label others) {
      mv.visitVarInsn(ALOAD, 0);
      for (String field : FIELDS) {
        mv.visitVarInsn(ALOAD, 0);
        mv.visitFieldInsn(GETFIELD, owner, field, fields.get(field));
      }
      mv.visitMethodInsn(INVOKESTATIC, Weave.BRIDGE, "span", "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/String;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;", false);
      mv.visitInsn(DUP);
      Label replaced = new Label();
      mv.visitJumpInsn(IFNONNULL, replaced);
      mv.visitInsn(POP);
      mv.visitJumpInsn(GOTO, others);
      mv.visitLabel(replaced);
      mv.visitFrame(F_NEW, 1, new Object[] {owner}, 1, new Object[] {"java/lang/Object"});
      mv.visitTypeInsn(CHECKCAST, span.getInternalName());
      mv.visitInsn(ARETURN);
    }
  }
}
