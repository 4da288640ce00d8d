package io.github.sibyltrace.agent.weave;

/** The reasons not to instrument a class. */
public final class Refusal {
  private static final String OURS = "io.github.sibyltrace.agent.";
  private static final String LOADER = "sibyl-agent"; // of libraries of the agent

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
        || LOADER.equals(loader.getName())
        || loader.getClass().getName().startsWith("io.opentelemetry.javaagent.");
  }

  /**
   * Returns why a class that is being loaded is not instrumented, null if it can be.
   *
   * @param findsBridge whether the classes of its loader do
   */
  public static String ofNew(ClassFile file, boolean findsBridge) {
    String reason = file.refusal();
    return reason != null || findsBridge ? reason : "its class loader hides the bootstrap class path, and cannot be changed";
  }

  /**
   * Returns why a loaded class is not transformed again, null if it can be.
   *
   * @param file the class as its loader has it: the JVM may hand out less than that
   * @param findsBridge whether the classes of its loader do
   */
  public static String ofLoaded(ClassFile file, boolean findsBridge) {
    String damage = file.damage();
    return damage != null ? damage : ofNew(file, findsBridge);
  }
}
