package io.github.sibyltrace.android.weaver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MainTest {
  @TempDir Path temporary;
  private Path classes;
  private String messages;

  @BeforeEach
  void copyClasses() throws IOException {
    classes = temporary.resolve("classes");
    for (String name : new String[] {"app/Client.class", "app/Library.class"}) {
      write(name, Woven.classFile(name.replace(".class", "")));
    }
    write("app/data.txt", new byte[] {1});
  }

  private void write(String name, byte[] content) throws IOException {
    Path file = classes.resolve(name);
    Files.createDirectories(file.getParent());
    Files.write(file, content);
  }

  /** Runs the weaver on the classes. */
  private int run(String... options) throws IOException {
    String[] args = new String[options.length + 1];
    System.arraycopy(options, 0, args, 0, options.length);
    args[options.length] = classes.toString();
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    int status = Main.run(args, new PrintStream(out), new PrintStream(out));
    messages = out.toString();
    return status;
  }

  @Test
  void weavesFolders() throws IOException {
    Path rules = Files.writeString(temporary.resolve("rules"), "method app.Client#get()\n");
    Path catalogue = temporary.resolve("catalogue");
    Path to = temporary.resolve("out");
    assertEquals(0, run("--service", "shop", "--rules", rules.toString(), "--catalogue", catalogue.toString(), "--explain", "-o", to.toString()), messages);
    assertEquals("0\tmethod\tshop/app.Client.get()\n", Files.readString(catalogue));
    assertEquals("shop/app.Client.get(): method app.Client#get()\n1 methods and 0 calls woven in 1 of 2 classes, 0 refusals\n", messages);
    assertEquals(1, Files.size(to.resolve("classes/app/data.txt")));
    assertTrue(Files.size(to.resolve("classes/app/Client.class")) > Files.size(classes.resolve("app/Client.class")));
  }

  @Test
  void refusalsFailOnlyIfStrict() throws IOException {
    write("app/Broken.class", new byte[] {1, 2, 3});
    String to = temporary.resolve("out").toString();
    assertEquals(0, run("--service", "shop", "-o", to), messages);
    assertTrue(messages.contains("refused: app/Broken.class: "), messages);
    assertEquals(1, run("--service", "shop", "--strict", "-o", to), messages);
  }

  @Test
  void saysWhichClassesRulesNeed() throws IOException {
    Path rules = Files.writeString(temporary.resolve("rules"), "wrap com.other.Base+#load com.other.Wrappers.*\n");
    Files.delete(classes.resolve("app/Library.class"));
    assertEquals(0, run("--service", "shop", "--rules", rules.toString(), "-o", temporary.resolve("out").toString()), messages);
    assertTrue(messages.contains("such as app.Library: add them with --lib"), messages);
  }

  @Test
  void refusesToOverwriteItsInputs() throws IOException {
    assertEquals(2, run("--service", "shop", "-o", temporary.toString()));
    assertTrue(messages.contains("would be overwritten: choose another -o"), messages);
  }

  @Test
  void errorsSayWhatToChange() throws IOException {
    assertEquals(2, run("-o", "out"));
    assertTrue(messages.contains("--service, -o and an input are required"), messages);
    assertEquals(2, run("--service", "shop", "-o", "out", "--fast"));
    assertTrue(messages.contains("unknown option --fast"), messages);
    assertEquals(1, run("--service", "shop", "-o", temporary.resolve("out").toString(), "--rules", "none.txt"));
    assertTrue(messages.contains("none.txt: no such file"), messages);
    assertFalse(Files.exists(temporary.resolve("out")));
  }
}
