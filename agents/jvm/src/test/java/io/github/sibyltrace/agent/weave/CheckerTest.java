package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
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
  @Test
  void allClassesOfTheJdkStayValid() throws Exception {
    assumeTrue(System.getProperty("soak") != null, "takes minutes: set -Dsoak");
    List<Path> files;
    try (Stream<Path> all = Files.walk(FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules"))) {
      files = all.filter(p -> p.toString().endsWith(".class") && !p.endsWith("module-info.class")).collect(Collectors.toList());
    }
    List<String> broken = new ArrayList<>();
    int methods = 0;
    for (Path file : files) {
      byte[] bytes = Files.readAllBytes(file);
      int n = new ClassFile(bytes).methods.size();
      if (n == 0) {
        continue;
      }
      String after = check(WeaveTest.weaveAll(bytes, 70_000));
      if (after.isEmpty()) {
        methods += n;
      } else if (check(bytes).isEmpty()) {
        broken.add(file + ": " + after);
      }
    }
    System.out.println(methods + " methods in " + files.size() + " classes");
    assertEquals(List.of(), broken.subList(0, Math.min(broken.size(), 5)));
    assertTrue(methods > 100_000, methods + " methods");
  }

  /** Returns the first error of a class, empty if it is valid. */
  private static String check(byte[] classFile) {
    StringWriter out = new StringWriter();
    try {
      CheckClassAdapter.verify(new ClassReader(classFile), ClassLoader.getSystemClassLoader(), false, new PrintWriter(out));
    } catch (RuntimeException | LinkageError e) { // it loads the classes that a class refers to
      return e.toString();
    }
    return out.toString().lines().findFirst().orElse("");
  }
}
