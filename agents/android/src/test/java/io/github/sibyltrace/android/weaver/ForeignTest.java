package io.github.sibyltrace.android.weaver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.util.CheckClassAdapter;

/** Weaves all methods of widely used libraries. */
class ForeignTest {
  private static final Path FOREIGN = Path.of("target/foreign"); // by mvn dependency:copy

  private static final String DEXDUMP = "/usr/bin/dexdump";

  @TempDir static Path temporary;
  private static Path android;
  private static Path r8;
  private static List<Path> libraries;
  private static String report;

  @BeforeAll
  static void weave() throws IOException {
    assumeTrue(Files.isDirectory(FOREIGN), "run mvn dependency:copy");
    try (Stream<Path> files = Files.list(FOREIGN)) {
      libraries = files.sorted().collect(Collectors.toCollection(ArrayList::new));
    }
    android = remove("android-all");
    r8 = remove("tools.r8");
    assertEquals(17, libraries.size());
    report = run(temporary.resolve("woven"), libraries);
  }

  private static Path remove(String name) {
    Path found = libraries.stream().filter(p -> p.toString().contains(name)).findFirst().orElseThrow();
    libraries.remove(found);
    return found;
  }

  /** Weaves, and returns all messages. */
  private static String run(Path folder, List<Path> inputs) throws IOException {
    Path rules = Files.writeString(temporary.resolve("rules"), "method **\n");
    List<String> args = new ArrayList<>(List.of("--service", "foreign", "--rules", rules.toString(), "--lib", android.toString(), "-o", folder.toString()));
    inputs.forEach(p -> args.add(p.toString()));
    ByteArrayOutputStream messages = new ByteArrayOutputStream();
    PrintStream to = new PrintStream(messages);
    assertEquals(0, Main.run(args.toArray(new String[0]), to, to), messages::toString);
    return messages.toString();
  }

  private static List<Path> woven() {
    return libraries.stream().map(p -> temporary.resolve("woven").resolve(p.getFileName())).collect(Collectors.toList());
  }

  @Test
  void listsWhatItRefuses() {
    List<String> refused = report.lines().filter(l -> l.startsWith("refused: ")).collect(Collectors.toList());
    assertEquals(4, refused.size(), report);
    assertTrue(refused.get(0).contains("LockableKt.withLock"), report); // which Android's runtime would run slowly, or not at all
    assertTrue(refused.subList(1, 4).stream().allMatch(l -> l.contains("longer than 256 bytes")), report);
    assertTrue(report.contains("16969 methods and 220 calls woven in 3308 of 4394 classes, 4 refusals"), report);
  }

  @Test
  void aSecondWeaveChangesNothing() throws IOException {
    Path again = temporary.resolve("again");
    run(again, woven());
    for (Path p : woven()) {
      assertArrayEquals(Files.readAllBytes(p), Files.readAllBytes(again.resolve(p.getFileName())), p.toString());
    }
  }

  /** Loads classes without running them. */
  private static final class Loader extends ClassLoader {
    private final Archives archives;

    Loader(Archives archives) {
      super(ClassLoader.getPlatformClassLoader());
      this.archives = archives;
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
      try {
        byte[] b = archives.find(name.replace('.', '/'));
        if (b != null) {
          return defineClass(name, b, 0, b.length);
        }
      } catch (IOException e) {
        throw new ClassNotFoundException(name, e);
      }
      throw new ClassNotFoundException(name);
    }
  }

  /** All code is verified as the JVM would, and monitors are balanced as Android wants it, wherever they were before. */
  @Test
  void verifies() throws IOException {
    List<String> errors = new ArrayList<>();
    int verified = 0;
    for (Path library : libraries) {
      try (Archives original = new Archives()) {
        original.add(library);
        original.add(android);
        for (Path p : libraries) {
          original.add(p);
        }
        Loader loader = new Loader(original);
        for (byte[] woven : classes(temporary.resolve("woven").resolve(library.getFileName()))) {
          String name = new ClassReader(woven).getClassName();
          byte[] before = original.find(name);
          if (!errors(woven, loader).isEmpty() && errors(before, loader).isEmpty()) {
            errors.add(name + ": " + errors(woven, loader));
          }
          List<String> objections = objections(woven);
          objections.removeAll(objections(before));
          errors.addAll(objections);
          verified++;
        }
      }
    }
    assertEquals(List.of(), errors);
    assertEquals(4394, verified);
  }

  private static String errors(byte[] classFile, ClassLoader loader) {
    StringWriter errors = new StringWriter();
    try {
      CheckClassAdapter.verify(new ClassReader(classFile), loader, false, new PrintWriter(errors));
    } catch (TypeNotPresentException | LinkageError e) {
      errors.write(e.toString()); // a library that is not here
    }
    return errors.toString();
  }

  private static List<String> objections(byte[] classFile) {
    ClassNode c = new ClassNode();
    new ClassReader(classFile).accept(c, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
    List<String> found = new ArrayList<>();
    for (MethodNode m : c.methods) {
      String o = Locks.objection(m);
      if (o != null) {
        found.add(c.name + "." + m.name + m.desc + ": " + o);
      }
    }
    return found;
  }

  /** Returns the classes of a jar, or of the jars in an AAR. */
  private static List<byte[]> classes(Path archive) throws IOException {
    List<byte[]> all = new ArrayList<>();
    try (FileSystem zip = FileSystems.newFileSystem(archive, (ClassLoader) null); Stream<Path> walk = Files.walk(zip.getPath("/"))) {
      for (Path p : walk.sorted().collect(Collectors.toList())) {
        String name = p.toString();
        if (name.endsWith(".class") && !name.startsWith("/META-INF/") && !name.endsWith("module-info.class")) {
          all.add(Files.readAllBytes(p));
        } else if (archive.toString().endsWith(".aar") && name.matches("/(classes|libs/[^/]*)\\.jar")) {
          all.addAll(classes(extracted(p)));
        }
      }
    }
    return all;
  }

  private static Path extracted(Path jar) throws IOException {
    Path copy = Files.createTempFile(temporary, "nested", ".jar");
    Files.write(copy, Files.readAllBytes(jar));
    return copy;
  }

  /** Android's compiler accepts all classes, and its runtime's checker of dex files what the compiler writes. */
  @Test
  void compiles() throws Exception {
    List<Path> jars = new ArrayList<>();
    for (Path p : woven()) {
      if (p.toString().endsWith(".jar")) {
        jars.add(p);
        continue;
      }
      try (FileSystem aar = FileSystems.newFileSystem(p, (ClassLoader) null)) {
        jars.add(extracted(aar.getPath("/classes.jar")));
      }
    }
    jars.removeIf(p -> p.toString().contains("okhttp3.okhttp-")); // they have the classes of okhttp-android
    String java = System.getProperty("java.home");
    Path to = Files.createDirectory(temporary.resolve("dex"));
    List<String> command = new ArrayList<>(List.of(java + "/bin/java", "-XX:TieredStopAtLevel=1", "-cp", r8.toString(), "com.android.tools.r8.D8", "--release"));
    Collections.addAll(command, "--min-api", "26", "--lib", android.toString(), "--lib", java, "--output", to.toString());
    jars.forEach(p -> command.add(p.toString()));
    succeed(command);
    Path dex = to.resolve("classes.dex");
    assertTrue(Files.size(dex) > 5_000_000, dex.toString());
    if (new File(DEXDUMP).exists()) {
      succeed(List.of(DEXDUMP, "-f", dex.toString())); // verifies the file when it opens it
    }
  }

  private static void succeed(List<String> command) throws Exception {
    Path messages = Files.createTempFile(temporary, "messages", "");
    Process p = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(messages.toFile()).start();
    assertEquals(0, p.waitFor(), () -> command + ": " + read(messages));
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      return e.toString();
    }
  }
}
