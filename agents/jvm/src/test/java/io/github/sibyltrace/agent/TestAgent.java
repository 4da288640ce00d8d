package io.github.sibyltrace.agent;

import com.sun.tools.attach.VirtualMachine;
import java.io.OutputStream;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;

/** Gives tests the instrumentation of their own JVM. */
public final class TestAgent {
  private static Instrumentation instrumentation; // guarded by the class

  private TestAgent() {}

  /** Called by the JVM. */
  public static void agentmain(String arguments, Instrumentation i) {
    instrumentation = i;
  }

  /** Returns the instrumentation. It attaches to the JVM when it is called first. */
  public static synchronized Instrumentation instrumentation() throws Exception {
    if (instrumentation == null) {
      Path jar = Files.createTempFile("test-agent", ".jar");
      Manifest m = new Manifest();
      m.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
      m.getMainAttributes().putValue("Agent-Class", TestAgent.class.getName());
      m.getMainAttributes().putValue("Can-Retransform-Classes", "true");
      try (OutputStream out = Files.newOutputStream(jar)) {
        new JarOutputStream(out, m).close();
      }
      VirtualMachine vm = VirtualMachine.attach(Long.toString(ProcessHandle.current().pid()));
      try {
        vm.loadAgent(jar.toString());
      } finally {
        vm.detach();
        Files.delete(jar);
      }
    }
    return instrumentation;
  }
}
