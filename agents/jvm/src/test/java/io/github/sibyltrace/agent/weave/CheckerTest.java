package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.util.CheckClassAdapter;

/**
 * Analyses the classes of the JDK, some 20 000, with all methods instrumented, as far as ASM can analyse the original. It
 * takes minutes, and runs if the system property soak is set.
 */
class CheckerTest {
  private static final String NOT_PRESENT = "not present"; // the error of ASM if it cannot load a class that it compares

  /** Loads the classes of all modules, also of those that this JVM does not need. */
  private static final class AllModules extends ClassLoader {
    private final Map<String, Path> files = new HashMap<>(); // by name of the class

    AllModules(List<Path> files) {
      super(ClassLoader.getSystemClassLoader());
      for (Path file : files) {
        String name = file.subpath(2, file.getNameCount()).toString(); // without /modules and the name of the module
        this.files.put(name.substring(0, name.length() - ".class".length()).replace('/', '.'), file);
      }
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
      Path file = files.get(name);
      if (file == null) {
        throw new ClassNotFoundException(name);
      }
      try {
        byte[] bytes = Files.readAllBytes(file);
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException e) {
        throw new ClassNotFoundException(name, e);
      }
    }
  }

  @Test
  void allClassesOfTheJdkStayValid() throws Exception {
    assumeTrue(System.getProperty("soak") != null, "takes minutes: set -Dsoak");
    List<Path> files;
    try (Stream<Path> all = Files.walk(FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules"))) {
      files = all.filter(p -> p.toString().endsWith(".class") && !p.endsWith("module-info.class")).collect(Collectors.toList());
    }
    AllModules loader = new AllModules(files);
    List<String> broken = new ArrayList<>();
    int methods = 0;
    int unknown = 0; // classes that cannot be analysed
    for (Path file : files) {
      byte[] bytes = Files.readAllBytes(file);
      int n = new ClassFile(bytes).methods.size();
      if (n == 0) {
        continue;
      }
      String after = check(WeaveTest.weaveAll(bytes, 70_000), loader);
      if (after.isEmpty()) {
        methods += n;
      } else if (after.contains(NOT_PRESENT) || !check(bytes, loader).isEmpty()) {
        unknown++;
      } else {
        broken.add(file + ": " + after);
      }
    }
    System.out.println(methods + " methods in " + files.size() + " classes, of which " + unknown + " cannot be analysed");
    assertTrue(unknown * 50 < files.size(), unknown + " classes cannot be analysed");
    assertEquals(List.of(), broken.subList(0, Math.min(broken.size(), 5)));
    assertTrue(methods > 100_000, methods + " methods");
  }

  /** Returns the first error of a class, empty if it is valid. */
  private static String check(byte[] classFile, ClassLoader loader) {
    StringWriter out = new StringWriter();
    try {
      CheckClassAdapter.verify(new ClassReader(classFile), loader, false, new PrintWriter(out));
    } catch (RuntimeException | LinkageError e) { // it loads the classes that a class refers to
      return e + " " + NOT_PRESENT;
    }
    return out.toString().lines().findFirst().orElse("");
  }
}
