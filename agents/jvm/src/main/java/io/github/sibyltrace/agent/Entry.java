package io.github.sibyltrace.agent;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/** The entries for {@code -javaagent} and for attaching to a running JVM. */
public final class Entry {
  private Entry() {}

  /** Called before the program's main method, which must start whatever happens here. */
  public static void premain(String arguments, Instrumentation instrumentation) {
    try {
      start(arguments, instrumentation);
    } catch (Throwable t) {
      System.setProperty("sibyl.agent.error", t.toString()); // as Agent does
      System.err.println("sibyl-agent: cannot start: " + t);
    }
  }

  /** Called in a running JVM. */
  public static void agentmain(String arguments, Instrumentation instrumentation) {
    premain(arguments, instrumentation);
  }

  /**
   * Starts the agent as a class of the bootstrap class loader, whose classes all others see. This class must use no
   * other class of the jar: its own loader would load it.
   */
  private static void start(String arguments, Instrumentation instrumentation) throws Exception {
    start(arguments, instrumentation, new File(Entry.class.getProtectionDomain().getCodeSource().getLocation().toURI()));
  }

  static void start(String arguments, Instrumentation instrumentation, File jar) throws Exception {
    JarFile opened = new JarFile(jar); // stays open
    instrumentation.appendToBootstrapClassLoaderSearch(opened);
    Class.forName("io.github.sibyltrace.agent.Agent", true, null)
        .getMethod("start", String.class, Instrumentation.class, JarFile.class)
        .invoke(null, arguments, instrumentation, opened);
  }
}
