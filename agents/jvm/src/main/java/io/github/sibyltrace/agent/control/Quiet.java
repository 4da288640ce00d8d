package io.github.sibyltrace.agent.control;

import java.lang.reflect.Method;

/** Keeps OpenTelemetry's Java agent from tracing this agent's own requests as if they were the application's. */
final class Quiet {
  private static volatile Method suppress; // null: that agent was not seen yet

  private Quiet() {}

  static void run(Runnable action) {
    Method m = suppress != null ? suppress : find();
    if (m == null) {
      action.run();
      return;
    }
    suppress = m;
    try {
      m.invoke(null, action);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e); // actions do not throw
    }
  }

  private static Method find() {
    for (String name : new String[] {"impl", "internal"}) { // by version
      try {
        return Class.forName("io.opentelemetry.javaagent.shaded.io.opentelemetry.api." + name + ".InstrumentationUtil", false, null)
            .getMethod("suppressInstrumentation", Runnable.class);
      } catch (ReflectiveOperationException | LinkageError e) {
        // not this version, or not there
      }
    }
    return null;
  }
}
