package io.github.sibyltrace.agent.weave;

import io.github.sibyltrace.agent.bridge.Bridge;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * Makes all class loaders find the bridge. Those of OSGi and of some application servers hide the bootstrap class path,
 * or show it to some callers only.
 */
public final class Loaders implements ClassFileTransformer {
  private final Instrumentation instrumentation;
  private final Set<Class<?>> open = Collections.newSetFromMap(new WeakHashMap<>()); // classes of loaders; guarded by this

  /** Begins to observe class loaders. */
  public Loaders(Instrumentation instrumentation) {
    this.instrumentation = instrumentation;
    instrumentation.addTransformer(this, true);
  }

  /** Ends the observation, and restores the loaders. */
  public synchronized void close() {
    instrumentation.removeTransformer(this);
    for (Class<?> c : open) {
      retransform(c);
    }
    open.clear();
  }

  /**
   * Makes a loader find the bridge, and reports whether it does. It transforms the classes of the loader, which is not
   * possible while a class is being transformed.
   */
  public synchronized boolean open(ClassLoader loader) {
    for (Class<?> c : ofApplication(loader.getClass())) {
      if (open.add(c) && !retransform(c)) {
        open.remove(c);
      }
    }
    return findBridge(loader);
  }

  /** Returns the classes of a loader that do not belong to the JDK, whose loaders hide nothing. */
  private static List<Class<?>> ofApplication(Class<?> loader) {
    List<Class<?>> classes = new ArrayList<>();
    for (Class<?> c = loader; c.getClassLoader() != null && c.getClassLoader() != ClassLoader.getPlatformClassLoader(); c = c.getSuperclass()) {
      classes.add(c);
    }
    return classes;
  }

  private boolean retransform(Class<?> c) {
    try {
      instrumentation.retransformClasses(c);
      return true;
    } catch (UnmodifiableClassException | LinkageError | RuntimeException e) {
      return false; // findBridge tells
    }
  }

  /** Reports whether classes of a loader find the bridge. */
  public static boolean findBridge(ClassLoader loader) {
    try {
      return Class.forName(Bridge.class.getName(), false, loader) == Bridge.class;
    } catch (ClassNotFoundException | LinkageError e) {
      return false;
    }
  }

  @Override
  public byte[] transform(ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    try {
      // Loaders that are yet to be loaded are recognized by the usual name, which spares reading all other classes.
      boolean isLoader = redefined == null ? internalName != null && internalName.contains("ClassLoader") : ClassLoader.class.isAssignableFrom(redefined);
      return isLoader && !Refusal.ofPlatform(internalName.replace('/', '.'), loader) ? LoaderHook.apply(bytes) : null;
    } catch (Throwable t) {
      return null; // the loader remains as it is, which findBridge tells
    }
  }
}
