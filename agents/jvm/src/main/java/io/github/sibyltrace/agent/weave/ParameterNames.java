package io.github.sibyltrace.agent.weave;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;

/**
 * Restores the names of parameters of loaded classes. JVMs before Java 19 hand out class files of loaded classes without
 * the names that {@code javac -parameters} wrote (JDK-8240908). A class that is transformed without them would lose
 * them, and frameworks such as Spring rely on them.
 */
public final class ParameterNames {
  private static final boolean FORGOTTEN = Runtime.version().feature() < 19;

  private final Map<Class<?>, Map<String, List<Parameter>>> known = new WeakHashMap<>(); // guarded by this

  /** Reads the names of a loaded class, so that they do not depend on its class file later, which a deployment may replace. */
  public void remember(Class<?> loaded) throws IOException {
    if (FORGOTTEN) {
      namesOf(loaded);
    }
  }

  private synchronized Map<String, List<Parameter>> namesOf(Class<?> loaded) throws IOException {
    Map<String, List<Parameter>> names = known.get(loaded);
    if (names == null) {
      byte[] original = ClassFile.read(loaded);
      names = original == null ? Map.of() : read(original);
      known.put(loaded, names);
    }
    return names;
  }

  /**
   * Returns the class file with the names that the loader's class file has.
   *
   * @param loaded null: the class is being loaded, and its class file is complete
   */
  public byte[] restore(Class<?> loaded, byte[] classFile) throws IOException {
    if (!FORGOTTEN || loaded == null) {
      return classFile;
    }
    Map<String, List<Parameter>> names = namesOf(loaded);
    if (names.isEmpty()) {
      return classFile;
    }
    ClassReader reader = new ClassReader(classFile);
    ClassWriter writer = new ClassWriter(reader, 0);
    reader.accept(
        new ClassVisitor(Weave.API, writer) {
          @Override
          public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
            MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
            List<Parameter> known = names.get(name + descriptor);
            return known == null ? next : new Restored(next, known);
          }
        },
        0);
    return writer.toByteArray();
  }

  /** Returns the parameters of a class file by name and descriptor of the method. */
  private static Map<String, List<Parameter>> read(byte[] classFile) {
    Map<String, List<Parameter>> all = new HashMap<>();
    new ClassReader(classFile)
        .accept(
            new ClassVisitor(Weave.API) {
              @Override
              public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
                return new MethodVisitor(Weave.API) {
                  @Override
                  public void visitParameter(String name, int access) {
                    all.computeIfAbsent(method + descriptor, x -> new ArrayList<>()).add(new Parameter(name, access));
                  }
                };
              }
            },
            ClassReader.SKIP_CODE | ClassReader.SKIP_FRAMES); // SKIP_DEBUG would skip the names, too
    return all.isEmpty() ? Map.of() : all;
  }

  private static final class Parameter {
    final String name; // null: the class file has only the access flags
    final int access;

    Parameter(String name, int access) {
      this.name = name;
      this.access = access;
    }
  }

  /** Writes the known parameters in place of those that the class file has. */
  private static final class Restored extends MethodVisitor {
    Restored(MethodVisitor next, List<Parameter> known) {
      super(Weave.API, next);
      known.forEach(p -> next.visitParameter(p.name, p.access));
    }

    @Override
    public void visitParameter(String name, int access) {}
  }
}
