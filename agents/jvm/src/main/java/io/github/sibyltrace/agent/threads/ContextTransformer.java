package io.github.sibyltrace.agent.threads;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.weave.ContextHook;
import io.github.sibyltrace.agent.weave.Loaders;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.security.ProtectionDomain;

/** Lets the bridge hear which context of OpenTelemetry a thread has, of any OpenTelemetry in this JVM. */
public final class ContextTransformer implements ClassFileTransformer {
  private final Log log;

  private ContextTransformer(Log log) {
    this.log = log;
  }

  /** Begins to tell changes to a listener. */
  public static void start(Bridge.ContextListener listener, Instrumentation instrumentation, Log log) {
    Bridge.setContextListener(listener);
    instrumentation.addTransformer(new ContextTransformer(log), true);
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (ContextHook.applies(c.getName())) {
        try {
          instrumentation.retransformClasses(c);
        } catch (UnmodifiableClassException | LinkageError | RuntimeException e) {
          log.error("waits and stacks have no spans: cannot instrument " + c.getName(), e);
        }
      }
    }
  }

  @Override
  public byte[] transform(ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    try {
      boolean applies = internalName != null && ContextHook.applies(internalName.replace('/', '.'));
      return applies && Loaders.findBridge(loader) ? ContextHook.apply(bytes) : null;
    } catch (Throwable t) {
      log.error("waits and stacks have no spans: cannot instrument " + internalName, t);
      return null;
    }
  }
}
