package io.github.sibyltrace.agent.weave;

import java.util.HashMap;
import java.util.Map;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Adds calls of the bridge to bodies of methods. It adds no members and changes no signatures, so that a loaded class
 * can be transformed at any time, and together with the transformations of other agents.
 */
public final class Weave {
  /** The version of the API of ASM. */
  public static final int API = Opcodes.ASM9;
  static final String BRIDGE = "io/github/sibyltrace/agent/bridge/Bridge";

  private Weave() {}

  /**
   * Returns the class with the hooks added.
   *
   * @param hooks by name and descriptor of methods and constructors
   */
  public static byte[] apply(byte[] classFile, Map<String, Hook> hooks) {
    ClassReader reader = new ClassReader(classFile);
    Map<String, Integer> locals = new HashMap<>();
    reader.accept(new Locals(hooks, locals), ClassReader.SKIP_FRAMES | ClassReader.SKIP_DEBUG);
    ClassWriter writer = new ClassWriter(reader, 0); // copies the methods that have no hook
    reader.accept(
        new ClassVisitor(API, writer) {
          private String name;
          private String parent;

          @Override
          public void visit(int version, int access, String name, String signature, String parent, String[] interfaces) {
            this.name = name;
            this.parent = parent;
            super.visit(version, access, name, signature, parent, interfaces);
          }

          @Override
          public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
            MethodVisitor next = super.visitMethod(access, method, descriptor, signature, exceptions);
            Hook hook = hooks.get(method + descriptor);
            Integer size = locals.get(method + descriptor);
            if (hook == null || size == null) {
              return next;
            }
            return method.equals("<init>") ? new ConstructorBody(next, hook, name, parent) : new Body(next, hook, access, descriptor, size);
          }
        },
        ClassReader.EXPAND_FRAMES);
    return writer.toByteArray();
  }

  /** Collects the number of local variables of the hooked methods that have code. */
  private static final class Locals extends ClassVisitor {
    private final Map<String, Hook> hooks;
    private final Map<String, Integer> locals;

    Locals(Map<String, Hook> hooks, Map<String, Integer> locals) {
      super(API);
      this.hooks = hooks;
      this.locals = locals;
    }

    @Override
    public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
      if (!hooks.containsKey(name + descriptor)) {
        return null;
      }
      return new MethodVisitor(API) {
        @Override
        public void visitMaxs(int stack, int size) {
          locals.put(name + descriptor, size);
        }
      };
    }
  }

  /** Pushes a number. */
  static void push(MethodVisitor v, int n) {
    if (n >= Short.MIN_VALUE && n <= Short.MAX_VALUE) {
      v.visitIntInsn(Opcodes.SIPUSH, n);
    } else {
      v.visitLdcInsn(n);
    }
  }
}
