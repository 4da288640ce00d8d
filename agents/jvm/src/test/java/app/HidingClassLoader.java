package app;

import java.io.IOException;
import java.io.InputStream;

/** Loads the classes of this package itself, and hides all others except for those of java.*, as loaders of OSGi do. */
public final class HidingClassLoader extends ClassLoader {
  @Override
  protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
    if (name.startsWith("java.")) {
      return super.loadClass(name, resolve);
    }
    synchronized (getClassLoadingLock(name)) {
      Class<?> c = findLoadedClass(name);
      return c != null ? c : findClass(name);
    }
  }

  @Override
  protected Class<?> findClass(String name) throws ClassNotFoundException {
    if (!name.startsWith("app.")) {
      throw new ClassNotFoundException(name);
    }
    try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
      byte[] bytes = in.readAllBytes();
      return defineClass(name, bytes, 0, bytes.length);
    } catch (IOException e) {
      throw new ClassNotFoundException(name, e);
    }
  }

  @Override
  public InputStream getResourceAsStream(String name) {
    return HidingClassLoader.class.getClassLoader().getResourceAsStream(name);
  }
}
