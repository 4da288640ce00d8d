package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.sibyltrace.agent.weave.ClassFile;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntUnaryOperator;
import org.junit.jupiter.api.Test;

class CallersTest {
  interface Store {
    int read(int key);
  }

  @Retention(RetentionPolicy.RUNTIME)
  @interface Scheduled {}

  static class Disk implements Store {
    @Override
    public int read(int key) {
      return seek(key) + seek(key + 1);
    }

    private int seek(int key) {
      return key < 2 ? key : seek(key / 2);
    }
  }

  static class Slow extends Base {
    int turn;

    @Override
    int step() {
      return turn++;
    }
  }

  abstract static class Base {
    abstract int step();

    int twice() {
      return step() * 2;
    }
  }

  static class Job implements Runnable {
    int left = 3;

    @Override
    public void run() {
      work();
    }

    private void work() {
      left--;
    }
  }

  static class Page {
    private final Store store;
    private final Base base = new Slow();
    int size = sized();

    Page(Store store) {
      this.store = store;
    }

    int show() {
      new Job().run();
      IntUnaryOperator first = k -> inLambda(k);
      IntUnaryOperator second = this::referred;
      return store.read(1) + base.twice() + both() + referred(3) + tick() + getTotal() + first.applyAsInt(1) + second.applyAsInt(2) + sized();
    }

    int list() {
      return both();
    }

    int both() {
      return ++size;
    }

    int inLambda(int k) {
      return k + size++;
    }

    int referred(int k) {
      return k + size++;
    }

    @Scheduled
    int tick() {
      return ++size;
    }

    int getTotal() {
      return ++size;
    }

    int sized() {
      return ++size;
    }
  }

  /** A caller is told only if nothing else may call the method. */
  @Test
  void tellsOnlyCallers() throws Exception {
    Callers callers = new Callers();
    Map<String, String> found = new TreeMap<>();
    Class<?>[] classes = {Disk.class, Store.class, Slow.class, Base.class, Job.class, Page.class};
    for (Class<?> c : classes) {
      callers.add(c, ClassFile.of(c), x -> x.getName().startsWith(CallersTest.class.getName()));
    }
    for (Class<?> c : classes) {
      for (ClassFile.Method m : ClassFile.of(c).methods) {
        String caller = callers.of(c.getName(), m);
        if (caller != null) {
          found.put(c.getSimpleName() + "." + m.name, caller.substring(caller.indexOf('$') + 1));
        }
      }
    }
    Map<String, String> want =
        Map.of(
            "Disk.read", "Page.show()I",
            "Disk.seek", "Disk.read(I)I",
            "Slow.step", "Base.twice()I",
            "Base.twice", "Page.show()I",
            "Job.work", "Job.run()V",
            "Page.inLambda", "Page.lambda$show$0(I)I");
    assertEquals(new TreeMap<>(want), found);
  }
}
