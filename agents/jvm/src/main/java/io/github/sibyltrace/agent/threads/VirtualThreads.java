package io.github.sibyltrace.agent.threads;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Tells virtual threads and their carriers apart from others, also where Java has none. */
final class VirtualThreads {
  private static final MethodHandle IS_VIRTUAL = find();

  private VirtualThreads() {}

  private static MethodHandle find() {
    try { // since Java 21
      return MethodHandles.publicLookup().findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
    } catch (ReflectiveOperationException e) {
      return MethodHandles.dropArguments(MethodHandles.constant(boolean.class, false), 0, Thread.class);
    }
  }

  static boolean isVirtual(Thread t) {
    try {
      return (boolean) IS_VIRTUAL.invokeExact(t);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** Reports whether a thread belongs to the scheduler of virtual threads. */
  static boolean isCarrier(Thread t) {
    for (Class<?> c = t.getClass(); c != Thread.class; c = c.getSuperclass()) {
      if (c.getSimpleName().equals("CarrierThread") && c.getClassLoader() == null) {
        return true;
      }
    }
    return false;
  }
}
