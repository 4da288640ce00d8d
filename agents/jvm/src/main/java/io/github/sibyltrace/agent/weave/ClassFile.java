package io.github.sibyltrace.agent.weave;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import org.objectweb.asm.AnnotationVisitor;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.RecordComponentVisitor;
import org.objectweb.asm.Type;
import org.objectweb.asm.TypePath;

/** Describes a class by its class file. */
public final class ClassFile {
  /** A method with code, or a constructor. */
  public static final class Method {
    public final String name;
    public final String descriptor;
    public final int access;

    Method(String name, String descriptor, int access) {
      this.name = name;
      this.descriptor = descriptor;
      this.access = access;
    }

    public boolean isConstructor() {
      return name.equals("<init>");
    }

    /** Returns name and types of the parameters, without packages: {@code price(Cart,int)}. */
    public String signature() {
      StringBuilder b = new StringBuilder(name).append('(');
      for (Type t : Type.getArgumentTypes(descriptor)) {
        String type = t.getClassName();
        b.append(b.charAt(b.length() - 1) == '(' ? "" : ",").append(type.substring(type.lastIndexOf('.') + 1));
      }
      return b.append(')').toString();
    }
  }

  public final String name; // with dots
  public final List<Method> methods = new ArrayList<>();
  private int version;
  private int access;
  private boolean annotatedRecord;
  private boolean parameterNames;

  /** Reads the class file of a loaded class. It returns null if its loader does not have it, as of generated classes. */
  public static ClassFile of(Class<?> c) throws IOException {
    try (InputStream in = c.getClassLoader().getResourceAsStream(c.getName().replace('.', '/') + ".class")) {
      return in == null ? null : new ClassFile(in.readAllBytes());
    }
  }

  /** Reads a class file. It throws a {@link RuntimeException} if that is not one, or of a version that ASM does not know. */
  public ClassFile(byte[] bytes) {
    ClassReader reader = new ClassReader(bytes);
    name = reader.getClassName().replace('/', '.');
    reader.accept(new Reader(), ClassReader.SKIP_CODE | ClassReader.SKIP_FRAMES);
  }

  /** Returns why the class cannot be instrumented, null if it can. */
  public String refusal() {
    if ((access & Opcodes.ACC_INTERFACE) != 0 && methods.isEmpty()) {
      return "an interface without code";
    }
    if ((version & 0xffff) < Opcodes.V1_6) {
      return "compiled for Java 5 or older";
    }
    return null;
  }

  /** Returns how the JVM damages the class when it transforms it again, null if it does not. */
  String damage() {
    return annotatedRecord ? "a record with annotated types, which the JVM damages when it transforms it (JDK-8376185)" : null;
  }

  /** Reports whether the class file names parameters, which some JVMs forget when they transform a class. */
  boolean namesParameters() {
    return parameterNames;
  }

  private final class Reader extends ClassVisitor {
    Reader() {
      super(Weave.API);
    }

    @Override
    public void visit(int version, int access, String name, String signature, String parent, String[] interfaces) {
      ClassFile.this.version = version;
      ClassFile.this.access = access;
    }

    @Override
    public RecordComponentVisitor visitRecordComponent(String name, String descriptor, String signature) {
      return new RecordComponentVisitor(Weave.API) {
        @Override
        public AnnotationVisitor visitTypeAnnotation(int type, TypePath path, String descriptor, boolean visible) {
          annotatedRecord = true;
          return null;
        }
      };
    }

    @Override
    public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
      boolean generated = (access & Opcodes.ACC_BRIDGE) != 0 || (access & Opcodes.ACC_SYNTHETIC) != 0 && !name.startsWith("lambda$");
      if ((access & (Opcodes.ACC_ABSTRACT | Opcodes.ACC_NATIVE)) == 0 && !generated && !name.equals("<clinit>")) {
        methods.add(new Method(name, descriptor, access));
      }
      return new MethodVisitor(Weave.API) {
        @Override
        public void visitParameter(String name, int access) {
          parameterNames |= name != null;
        }
      };
    }
  }
}
