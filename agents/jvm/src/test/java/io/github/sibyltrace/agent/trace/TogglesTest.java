package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import app.Work;
import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.plan.TestPlans;
import io.github.sibyltrace.agent.plan.Tracepoint;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.LongUnaryOperator;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/**
 * Switches methods on and off while threads call them: 20 times, or as often as the system property toggles says. No call
 * has another result, each span is one of its method and ends in order, and nothing of a change remains, except for what
 * the JVM keeps of the first ones: it links lambdas of a transformed class anew, with a class for each.
 */
class TogglesTest {
  private static final int TOGGLES = Integer.getInteger("toggles", 20);
  private static final int THREADS = 3;
  private static final int MOST_CLASSES = 10; // loaded in the last quarter of the changes, by tests and the JVM; a change of app.Work loads about four
  private static final String TRACE = "4bf92f35000000000000000000000036";
  private static final String[] METHODS = {"fail(int)", "handle(int)", "list(int,Object,Object)", "locked(int)", "loop(int)", "recursive(long,double,byte)"};

  private final AtomicReference<String> wrong = new AtomicReference<>();
  private final AtomicLong spans = new AtomicLong();
  private final AtomicLongArray calls = new AtomicLongArray(THREADS); // by thread
  private volatile boolean ended;

  /** Checks the spans of all threads instead of sending them. */
  private final class Checker implements Spans, SpansFactory {
    private final ThreadLocal<Deque<Span>> open = ThreadLocal.withInitial(ArrayDeque::new);

    private final class Span extends Activation {
      private final String id;

      Span(String id) {
        this.id = id;
      }

      @Override
      public void exit(Throwable thrown) {
        if (open.get().pop() != this) {
          wrong.compareAndSet(null, "a span of " + id + " ends before one that began later");
        }
        if (thrown != null && !id.contains("fail")) {
          wrong.compareAndSet(null, "a span of " + id + " has an exception: " + thrown);
        }
      }
    }

    @Override
    public Activation start(Point point) {
      Tracepoint t = point.tracepoint;
      if (!point.hit(Request.of(point.registry().plans(), TRACE, null, null), true)) {
        return null;
      }
      String method = StackWalker.getInstance().walk(s -> s.filter(f -> f.getClassName().startsWith("app.")).findFirst().get().getMethodName());
      if (!t.code.equals("app.Work." + method)) {
        wrong.compareAndSet(null, "a call of " + method + " has a span of " + t.code);
      }
      spans.incrementAndGet();
      Span s = new Span(t.id);
      open.get().push(s);
      return s;
    }

    @Override
    public Capture capture(Registry registry) {
      return null;
    }

    @Override
    public Bridge.SpanGate gate(Registry registry) {
      return (builder, parent, name, kind, scope) -> null;
    }

    @Override
    public Spans spansFor(ClassLoader loader) {
      return this;
    }

    @Override
    public Bridge.SamplerWrapper samplers(Registry registry) {
      return sampler -> sampler;
    }
  }

  /** Calls all methods, and compares the results with those of the first calls. */
  private void load(int thread, LongUnaryOperator work) {
    try {
      long[] want = new long[420];
      for (int n = 0; !ended; n++) {
        long got = work.applyAsLong(n % want.length);
        if (n < want.length) {
          want[n] = got;
        } else if (got != want[n % want.length]) {
          wrong.compareAndSet(null, "the result for " + n % want.length + " is " + got + ", before " + want[n % want.length]);
        }
        calls.incrementAndGet(thread);
      }
    } catch (Throwable t) { // a VerifyError, for example
      wrong.compareAndSet(null, t.toString());
    }
  }

  private static long metaspace() {
    System.gc();
    return ManagementFactory.getMemoryPoolMXBeans().stream().filter(p -> p.getName().equals("Metaspace")).mapToLong(p -> p.getUsage().getUsed()).sum();
  }

  private static long classes() {
    return ManagementFactory.getClassLoadingMXBean().getLoadedClassCount();
  }

  private static int handles() {
    String[] open = new File("/proc/self/fd").list();
    return open == null ? 0 : open.length;
  }

  @Test
  void leaveNothingBehind() throws Exception {
    Checker checker = new Checker();
    OwnClasses own = new OwnClasses(Pattern.compile("app\\.Work"), null, null, new Classifier("app.Main", List.of()));
    Registry registry = new Registry("shop", own, new Selection(name -> false, name -> false, false), 1_000_000, 0, TestAgent.instrumentation(), checker, new Log(System.err, Log.Level.WARN));
    registry.start();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      int number = i;
      threads.add(new Thread(() -> load(number, new Work()), "load-" + i));
    }
    threads.forEach(Thread::start);
    awaitCalls(500);
    registry.scan();
    assertEquals(8, registry.catalogue().size());

    long middle = 0;
    long classes = 0;
    int handles = 0;
    for (int n = 0; n < TOGGLES && wrong.get() == null; n++) {
      if (n == TOGGLES * 3 / 4) {
        middle = metaspace();
        classes = classes();
        handles = handles();
      }
      registry.apply(plan(2 * n + 1, n));
      for (Registry.Outcome o : registry.outcomes()) {
        assertEquals("applied", o.state, o.id + ": " + o.reason);
      }
      long enabled = spans.get();
      await(() -> spans.get() > enabled + 50);
      registry.apply(null);
      awaitCalls(2); // a call that began before may have a span
      long before = spans.get();
      awaitCalls(20);
      assertEquals(before, spans.get(), "spans of disabled tracepoints");
    }
    ended = true;
    for (Thread t : threads) {
      t.join();
    }
    assertNull(wrong.get());
    long loaded = classes() - classes;
    assertTrue(loaded <= MOST_CLASSES, loaded + " classes were loaded");
    assertTrue(metaspace() < middle + (128 << 10), "metaspace grew from " + middle + " to " + metaspace());
    assertTrue(handles() <= handles, "open files: " + handles + ", then " + handles());
    System.out.println(TOGGLES + " changes, " + calls + " calls, " + spans + " spans, metaspace " + middle / 1024 + " KiB, then " + metaspace() / 1024 + " KiB with " + loaded + " classes more");
  }

  /** Returns a plan that enables some of the methods, other ones in each round. */
  private static Plan plan(long version, int round) throws Exception {
    List<String> ids = new ArrayList<>();
    for (int i = 0; i < METHODS.length; i++) {
      if (i == round % METHODS.length || (round >> i & 1) == 1) {
        ids.add("shop/app.Work." + METHODS[i]);
      }
    }
    return TestPlans.of(version, ids.toArray(new String[0]));
  }

  /** Waits until each thread has made some calls. */
  private void awaitCalls(int n) {
    for (int i = 0; i < THREADS; i++) {
      int thread = i;
      long want = calls.get(i) + n;
      await(() -> calls.get(thread) >= want);
    }
  }

  private void await(BooleanSupplier done) {
    while (!done.getAsBoolean() && wrong.get() == null) {
      LockSupport.parkNanos(100_000);
    }
  }
}
