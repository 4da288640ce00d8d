package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarFile;
import org.junit.jupiter.api.Test;

/** Loads every class of the class path with all methods instrumented: the JVM's verifier must accept them. */
class VerifierTest {
  /** Loads the classes of some jars, instrumented, with all other classes from the parent. */
  private static final class Loader extends URLClassLoader {
    Loader(URL[] jars) {
      super(jars, VerifierTest.class.getClassLoader());
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      synchronized (getClassLoadingLock(name)) {
        Class<?> c = findLoadedClass(name);
        if (c != null) {
          return c;
        }
        URL file = name.startsWith("java.") ? null : findResource(name.replace('.', '/') + ".class");
        if (file == null) {
          return super.loadClass(name, resolve);
        }
        try (InputStream in = file.openStream()) {
          byte[] bytes = WeaveTest.weaveAll(in.readAllBytes(), 0);
          return defineClass(name, bytes, 0, bytes.length);
        } catch (IOException e) {
          throw new ClassNotFoundException(name, e);
        }
      }
    }
  }

  @Test
  void acceptsEveryClassOfTheClassPath() throws Exception {
    List<URL> urls = new ArrayList<>();
    List<String> names = new ArrayList<>();
    for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
      if (path.endsWith(".jar") && !path.contains("surefire")) {
        urls.add(new File(path).toURI().toURL());
        try (JarFile jar = new JarFile(path)) {
          jar.stream().map(e -> e.getName()).filter(n -> n.endsWith(".class") && !n.contains("-")).forEach(n -> names.add(n.substring(0, n.length() - 6).replace('/', '.')));
        }
      }
    }
    List<String> refused = new ArrayList<>();
    int verified = 0;
    try (Loader loader = new Loader(urls.toArray(new URL[0]))) {
      for (String name : names) {
        try {
          loader.loadClass(name).getDeclaredMethods(); // links the class, which verifies it
          verified++;
        } catch (VerifyError | ClassFormatError e) {
          refused.add(e.toString());
        } catch (NoClassDefFoundError e) {
          // an optional dependency is missing
        }
      }
    }
    assertEquals(List.of(), refused);
    assertTrue(verified > 1000, "only " + verified + " classes of the class path were verified");
  }
}
