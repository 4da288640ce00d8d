package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.weave.Weave;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.commons.ClassRemapper;
import org.objectweb.asm.commons.Remapper;

/** Loads copies of {@link app.Work}: app.copy.Work0, app.copy.Work1, and so on. */
final class Copies extends ClassLoader {
  private final Map<String, byte[]> files = new HashMap<>();

  Copies(int count) throws IOException {
    super(Copies.class.getClassLoader());
    try (InputStream in = getResourceAsStream("app/Work.class")) {
      ClassReader work = new ClassReader(in.readAllBytes());
      for (int i = 0; i < count; i++) {
        String name = "app/copy/Work" + i;
        ClassWriter w = new ClassWriter(0);
        work.accept(
            new ClassRemapper(
                w,
                new Remapper(Weave.API) {
                  @Override
                  public String map(String from) {
                    return from.equals("app/Work") ? name : from;
                  }
                }),
            0);
        files.put(name + ".class", w.toByteArray());
      }
    }
  }

  @Override
  protected Class<?> findClass(String name) throws ClassNotFoundException {
    byte[] bytes = files.get(name.replace('.', '/') + ".class");
    if (bytes == null) {
      throw new ClassNotFoundException(name);
    }
    return defineClass(name, bytes, 0, bytes.length);
  }

  @Override
  public InputStream getResourceAsStream(String name) {
    byte[] bytes = files.get(name);
    return bytes == null ? super.getResourceAsStream(name) : new ByteArrayInputStream(bytes);
  }
}
