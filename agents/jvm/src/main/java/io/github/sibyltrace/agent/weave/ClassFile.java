package io.github.sibyltrace.agent.weave;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.objectweb.asm.AnnotationVisitor;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.Label;
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
    public final boolean trivial; // only returns or sets a field or a constant, or was added by the compiler to a record or an enum
    public final boolean annotated; // visible at run time: a framework may call it
    public final int line; // the first one in the source; 0: unknown

    Method(String name, String descriptor, int access, boolean trivial, boolean annotated, int line) {
      this.name = name;
      this.descriptor = descriptor;
      this.access = access;
      this.trivial = trivial;
      this.annotated = annotated;
      this.line = line;
    }

    public boolean isConstructor() {
      return name.equals("<init>");
    }

    /** Returns name and types of the parameters, without packages: {@code price(Cart,int)}. */
    public String signature() {
      return ClassFile.signature(name, descriptor);
    }
  }

  /** A call of a method in code. */
  public static final class Call {
    public final String callee; // class with dots, name and descriptor
    public final String caller; // name and descriptor; null: unknown, as of methods that are passed to others

    Call(String callee, String caller) {
      this.callee = callee;
      this.caller = caller;
    }
  }

  public final String name; // with dots
  public final List<Method> methods = new ArrayList<>();
  public final List<Call> calls = new ArrayList<>();
  private int version;
  private int access;
  private boolean annotatedRecord;

  /** Describes a loaded class. It returns null if its loader does not have the class file, as of generated classes. */
  public static ClassFile of(Class<?> c) throws IOException {
    byte[] bytes = read(c);
    return bytes == null ? null : new ClassFile(bytes);
  }

  /** Returns the class file of a loaded class as its loader has it, null if it does not. */
  static byte[] read(Class<?> c) throws IOException {
    try (InputStream in = c.getClassLoader().getResourceAsStream(c.getName().replace('.', '/') + ".class")) {
      return in == null ? null : in.readAllBytes();
    }
  }

  /** Reads a class file. It throws a {@link RuntimeException} if that is not one, or of a version that ASM does not know. */
  public ClassFile(byte[] bytes) {
    ClassReader reader = new ClassReader(bytes);
    name = reader.getClassName().replace('/', '.');
    reader.accept(new Reader(), ClassReader.SKIP_FRAMES);
  }

  /** Returns name and types of the parameters of a method, without packages: {@code price(Cart,int)}. */
  public static String signature(String method, String descriptor) {
    StringBuilder b = new StringBuilder(method).append('(');
    for (Type t : Type.getArgumentTypes(descriptor)) {
      String type = t.getClassName();
      b.append(b.charAt(b.length() - 1) == '(' ? "" : ",").append(type.substring(type.lastIndexOf('.') + 1));
    }
    return b.append(')').toString();
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

  /** Reports whether a class, which may not be loaded yet, is an enum. */
  public static boolean isEnum(String name, ClassLoader loader) {
    try (InputStream in = loader.getResourceAsStream(name.replace('.', '/') + ".class")) {
      return in != null && "java/lang/Enum".equals(new ClassReader(in.readAllBytes()).getSuperName());
    } catch (IOException | RuntimeException e) {
      return false;
    }
  }

  /** Returns the names of the parameters that a class file has, by name and descriptor of the method; null: none. */
  public static Map<String, String[]> parameterNames(Class<?> c) throws IOException {
    byte[] bytes = read(c);
    Map<String, String[]> all = new HashMap<>();
    if (bytes != null) {
      new ClassReader(bytes).accept(new NameReader(all), ClassReader.SKIP_FRAMES);
    }
    return all;
  }

  /** Collects the names of parameters from debugging information, and from what {@code javac -parameters} wrote. */
  private static final class NameReader extends ClassVisitor {
    private final Map<String, String[]> all;

    NameReader(Map<String, String[]> all) {
      super(Weave.API);
      this.all = all;
    }

    @Override
    public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
      Type[] types = Type.getArgumentTypes(descriptor);
      String[] names = new String[types.length];
      all.put(method + descriptor, names);
      Map<Integer, Integer> bySlot = new HashMap<>();
      int slot = (access & Opcodes.ACC_STATIC) != 0 ? 0 : 1;
      for (int i = 0; i < types.length; i++) {
        bySlot.put(slot, i);
        slot += types[i].getSize();
      }
      return new MethodVisitor(Weave.API) {
        private int next;
        private Label first; // null: not seen yet

        @Override
        public void visitLabel(Label label) {
          first = first == null ? label : first;
        }

        @Override
        public void visitParameter(String name, int access) {
          if (next < names.length) {
            names[next++] = name;
          }
        }

        @Override
        public void visitLocalVariable(String name, String type, String signature, Label start, Label end, int slot) {
          Integer i = bySlot.get(slot);
          if (i != null && names[i] == null && start == first) {
            names[i] = name;
          }
        }
      };
    }
  }

  private final class Reader extends ClassVisitor {
    private boolean isEnum;

    Reader() {
      super(Weave.API);
    }

    @Override
    public void visit(int version, int access, String name, String signature, String parent, String[] interfaces) {
      ClassFile.this.version = version;
      ClassFile.this.access = access;
      isEnum = "java/lang/Enum".equals(parent);
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
      if ((access & (Opcodes.ACC_ABSTRACT | Opcodes.ACC_NATIVE)) != 0) {
        return null;
      }
      boolean ofEnum = isEnum && (access & Opcodes.ACC_STATIC) != 0 && (name.equals("values") && descriptor.startsWith("()") || name.equals("valueOf") && descriptor.startsWith("(Ljava/lang/String;)"));
      boolean listed = !generated && !name.equals("<clinit>");
      String caller = listed && !name.equals("<init>") ? name + descriptor : null;
      return new CodeReader((access & Opcodes.ACC_SYNCHRONIZED) != 0) {
        @Override
        void calls(String callee, boolean passed) {
          calls.add(new Call(callee, passed ? null : caller));
        }

        @Override
        void ends(boolean trivial, boolean annotated, int line) {
          if (listed) {
            methods.add(new Method(name, descriptor, access, trivial || ofEnum, annotated, line));
          }
        }
      };
    }
  }
}
