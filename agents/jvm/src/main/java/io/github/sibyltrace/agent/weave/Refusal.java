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

  /**
   * Returns why a class is not instrumented, null if it can be.
   *
   * @param loaded whether the class is loaded already, so that it would be transformed again
   */
  public static String of(ClassFile file, ClassLoader loader, boolean loaded) {
    String reason = file.refusal();
    if (reason == null && loaded && file.namesParameters() && forgetsParameterNames()) {
      reason = "compiled with -parameters, and this JVM forgets the names of parameters when it transforms a class (JDK-8240908)";
    }
    if (reason == null && !seesBridge(loader)) {
      reason = "its class loader does not see the bootstrap class path (with OSGi, add io.github.sibyltrace.agent.bridge to the boot delegation)";
    }
    return reason;
  }

  private static boolean forgetsParameterNames() {
    return Runtime.version().feature() < 17;
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
