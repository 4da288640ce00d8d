package io.github.sibyltrace.agent.trace;

import java.io.IOException;
import java.io.InputStream;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.commons.ClassRemapper;
import org.objectweb.asm.commons.Remapper;

/**
 * Loads the classes that use OpenTelemetry, next to the OpenTelemetry that they should use. OpenTelemetry's Java agent
 * has the API under other names, so that they are renamed.
 */
final class OtelLoader extends ClassLoader {
  static final String PACKAGE = "io.github.sibyltrace.agent.otel.";
  static final String AGENT_PREFIX = "io.opentelemetry.javaagent.shaded.";

  private static final String OURS = "io.github.sibyltrace.agent.";
  private static final ClassLoader AGENT = OtelLoader.class.getClassLoader();

  private final boolean ofAgent;

  /**
   * Creates a loader.
   *
   * @param parent sees OpenTelemetry
   * @param ofAgent whether that is the one in OpenTelemetry's Java agent
   */
  OtelLoader(ClassLoader parent, boolean ofAgent) {
    super(parent);
    this.ofAgent = ofAgent;
  }

  @Override
  protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
    if (!name.startsWith(OURS)) {
      return super.loadClass(name, resolve);
    }
    if (!name.startsWith(PACKAGE)) {
      return AGENT.loadClass(name);
    }
    synchronized (getClassLoadingLock(name)) { // the agent's loader has the class, too, but does not see OpenTelemetry
      Class<?> c = findLoadedClass(name);
      return c != null ? c : define(name);
    }
  }

  private Class<?> define(String name) throws ClassNotFoundException {
    try (InputStream in = AGENT.getResourceAsStream(name.replace('.', '/') + ".class")) {
      if (in == null) {
        throw new ClassNotFoundException(name);
      }
      byte[] bytes = in.readAllBytes();
      bytes = ofAgent ? rename(bytes) : bytes;
      return defineClass(name, bytes, 0, bytes.length);
    } catch (IOException e) {
      throw new ClassNotFoundException(name, e);
    }
  }

  private static byte[] rename(byte[] bytes) {
    ClassWriter writer = new ClassWriter(0);
    new ClassReader(bytes).accept(new ClassRemapper(writer, new ToAgent()), 0);
    return writer.toByteArray();
  }

  private static final class ToAgent extends Remapper {
    ToAgent() {
      super(io.github.sibyltrace.agent.weave.Weave.API);
    }

    @Override
    public String map(String name) {
      boolean renamed = name.startsWith("io/opentelemetry/api/") || name.startsWith("io/opentelemetry/context/");
      return renamed ? AGENT_PREFIX.replace('.', '/') + name : name;
    }
  }
}
