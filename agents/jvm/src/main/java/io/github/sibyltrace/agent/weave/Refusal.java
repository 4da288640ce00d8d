package io.github.sibyltrace.agent.weave;

import io.github.sibyltrace.agent.bridge.Bridge;

/** The reasons not to instrument a class. */
public final class Refusal {
  private static final String OURS = "io.github.sibyltrace.agent.";

  private Refusal() {}

  /** Reports whether a class belongs to the JDK or to an agent. */
  public static boolean ofPlatform(String name, ClassLoader loader) {
    return loader == null
        || loader == ClassLoader.getPlatformClassLoader()
        || name.startsWith(OURS)
        || name.startsWith("java.")
        || name.startsWith("jdk.")
        || name.startsWith("sun.")
        || name.startsWith("io.opentelemetry.javaagent.")
        || loader.getClass().getName().startsWith("io.opentelemetry.javaagent.");
  }

  /** Returns why a class that is being loaded is not instrumented, null if it can be. */
  public static String ofNew(ClassFile file, ClassLoader loader) {
    String reason = file.refusal();
    if (reason == null && !seesBridge(loader)) {
      reason = "its class loader does not see the bootstrap class path (with OSGi, add io.github.sibyltrace.agent.bridge to the boot delegation)";
    }
    return reason;
  }

  /**
   * Returns why a loaded class is not transformed again, null if it can be.
   *
   * @param file the class as its loader has it: the JVM may hand out less than that
   */
  public static String ofLoaded(ClassFile file, ClassLoader loader) {
    String reason = file.damage();
    if (reason == null && file.namesParameters() && Runtime.version().feature() < 19) {
      reason = "compiled with -parameters: this JVM forgets the names of parameters when it transforms a class (JDK-8240908); Java 19 and later do not";
    }
    return reason != null ? reason : ofNew(file, loader);
  }

  /** Reports whether classes of a loader can call the bridge. */
  public static boolean seesBridge(ClassLoader loader) {
    try {
      return Class.forName(Bridge.class.getName(), false, loader) == Bridge.class;
    } catch (ClassNotFoundException | LinkageError e) {
      return false;
    }
  }
}
