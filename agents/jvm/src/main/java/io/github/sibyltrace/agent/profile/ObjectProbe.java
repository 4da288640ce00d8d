package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.bridge.Probe;
import java.lang.ref.WeakReference;
import java.util.concurrent.atomic.LongAdder;

/** Counts the objects of one class, without those of its subclasses. */
final class ObjectProbe extends Probe {
  final String name;
  private final LongAdder count = new LongAdder();
  private volatile WeakReference<Class<?>> type = new WeakReference<>(null); // of the class; weak, so that it can be unloaded

  ObjectProbe(String name) {
    this.name = name;
  }

  @Override
  public void constructed(Object object) {
    Class<?> c = object.getClass();
    if (c == type.get()) {
      count.increment();
    } else if (c.getName().equals(name)) {
      type = new WeakReference<>(c);
      count.increment();
    }
  }

  long count() {
    return count.sum();
  }
}
