package io.github.sibyltrace.android.weaver;

import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.util.Textifier;
import org.objectweb.asm.util.TraceClassVisitor;

/** A class woven with the rules of a test. */
final class Woven extends ClassLoader {
  final Catalogue catalogue = new Catalogue();
  final Report report = new Report();
  final Weaver weaver;
  final byte[] bytes;
  private final Class<?> original;

  Woven(Class<?> original, String rules) throws IOException {
    super(Woven.class.getClassLoader());
    this.original = original;
    Rules r = new Rules(new Types(Woven::classFile));
    r.add("test", rules);
    weaver = new Weaver(r, "shop", catalogue, report);
    bytes = weaver.weave("test", classFile(original.getName().replace('.', '/')));
  }

  static byte[] classFile(String internalName) throws IOException {
    try (InputStream in = ClassLoader.getSystemResourceAsStream(internalName + ".class")) {
      return in == null ? null : in.readAllBytes();
    }
  }

  /** Loads the woven class beside the original one. */
  Class<?> load() {
    Class<?> c = findLoadedClass(original.getName());
    return c == null ? defineClass(original.getName(), bytes, 0, bytes.length) : c;
  }

  String text() {
    StringWriter text = new StringWriter();
    new ClassReader(bytes).accept(new TraceClassVisitor(null, new Textifier(), new PrintWriter(text)), ClassReader.SKIP_DEBUG);
    return text.toString();
  }
}
