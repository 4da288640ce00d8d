package io.github.sibyltrace.agent;

import io.opentelemetry.javaagent.extension.AgentListener;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/**
 * Starts the agent as an extension of OpenTelemetry's Java agent, with arguments from the system property sibyl.agent or
 * the environment variable SIBYL_AGENT. Like {@link Entry}, it must use no other class of the jar except for that one.
 */
public final class Extension implements AgentListener {
  @Override
  public void afterAgent(AutoConfiguredOpenTelemetrySdk sdk) {
    String arguments = System.getProperty("sibyl.agent", System.getenv("SIBYL_AGENT"));
    try {
      Class<?> holder = Class.forName("io.opentelemetry.javaagent.bootstrap.InstrumentationHolder", true, null);
      Instrumentation i = (Instrumentation) holder.getMethod("getInstrumentation").invoke(null);
      Entry.start(arguments, i, jar());
    } catch (Throwable t) { // the application must start nevertheless
      System.err.println("sibyl-agent: cannot start: " + t);
    }
  }

  /** Returns the jar of this class. Its loader does not tell; OpenTelemetry's Java agent was told the files to load. */
  private static File jar() throws IOException {
    String paths = System.getProperty("otel.javaagent.extensions", System.getenv("OTEL_JAVAAGENT_EXTENSIONS"));
    for (String path : paths == null ? new String[0] : paths.split(",")) {
      File[] folder = new File(path).listFiles();
      for (File f : folder == null ? new File[] {new File(path)} : folder) {
        if (f.getName().endsWith(".jar") && contains(f, Extension.class.getName().replace('.', '/') + ".class")) {
          return f;
        }
      }
    }
    throw new FileNotFoundException("none of otel.javaagent.extensions=" + paths + " is the jar of the agent");
  }

  private static boolean contains(File jar, String entry) throws IOException {
    try (JarFile j = new JarFile(jar)) {
      return j.getEntry(entry) != null;
    }
  }
}
