package io.github.sibyltrace.agent;

import java.io.File;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Collections;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * The entries for {@code -javaagent} and for attaching to a running JVM. This class must use no other class of the jar:
 * its loader, that of the application, does not see them.
 */
public final class Entry {
  private static final String PACKAGE = "io.github.sibyltrace.agent.";
  private static final String CLASSES = "agent/"; // the folder of the jar with the classes that only the agent sees

  private Entry() {}

  /** Called before the program's main method, which must start whatever happens here. */
  public static void premain(String arguments, Instrumentation instrumentation) {
    try {
      start(arguments, instrumentation, new File(Entry.class.getProtectionDomain().getCodeSource().getLocation().toURI()));
    } catch (Throwable t) {
      System.setProperty("sibyl.agent.error", t.toString()); // as Agent does
      System.err.println("sibyl-agent: cannot start: " + t);
    }
  }

  /** Called in a running JVM. */
  public static void agentmain(String arguments, Instrumentation instrumentation) {
    premain(arguments, instrumentation);
  }

  /** Starts the agent in a class loader of its own. Only the bridge is visible to all classes. */
  static void start(String arguments, Instrumentation instrumentation, File jar) throws Exception {
    if (!hasBridge()) {
      instrumentation.appendToBootstrapClassLoaderSearch(new JarFile(jar)); // stays open
    }
    URL classes = new URL("jar:" + jar.toURI() + "!/" + CLASSES);
    ClassLoader loader = new URLClassLoader("sibyl-agent", new URL[] {classes}, ClassLoader.getPlatformClassLoader());
    loadClasses(jar, loader);
    loader.loadClass(PACKAGE + "Agent").getMethod("start", String.class, Instrumentation.class).invoke(null, arguments, instrumentation);
  }

  /**
   * Loads all classes of the agent. A transformer is called by threads that are loading a class. If it had to load one of
   * these classes itself, it could wait for a thread that loads that one and waits, in turn, for the first.
   */
  private static void loadClasses(File file, ClassLoader loader) throws IOException, ClassNotFoundException {
    try (JarFile jar = new JarFile(file)) {
      for (JarEntry e : Collections.list(jar.entries())) {
        String name = e.getName();
        if (name.startsWith(CLASSES) && name.endsWith(".class")) {
          try {
            loader.loadClass(name.substring(CLASSES.length(), name.length() - ".class".length()).replace('/', '.'));
          } catch (NoClassDefFoundError needsOpenTelemetry) { // such a class is loaded next to it
          }
        }
      }
    }
  }

  /** Reports whether the bridge is there, because the agent is not the first in this JVM. */
  private static boolean hasBridge() {
    try {
      Class.forName(PACKAGE + "bridge.Bridge", false, null);
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }
}
