package io.github.sibyltrace.agent.stacks;

import io.github.sibyltrace.agent.plan.Limits;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Samples the stacks of threads that work for requests, running or waiting, while Sibyl asks for it. It knows the
 * request of a thread from its current context, so that it asks no other threads.
 */
public final class StackSampler {
  private static final long MIN_PAUSE = 10_000_000; // ns
  private static final long MAX_PAUSE = 1_000_000_000; // ns
  private static final int COST = 250; // pauses are this many times as long as the CPU time of samples: 0.4 % of a CPU, and less than 0.1 % in the threads that are asked
  private static final int SMOOTHING = 32; // samples
  private static final int MAX_THREADS = 32; // of a sample
  private static final int MAX_SERVED = 4096; // requests at a time
  private static final int KEPT = 512; // requests of an operation until the next report
  private static final int MAX_DEPTH = 128; // tracepoints of a stack
  private static final long REPORT_AGE = 5_000_000_000L; // ns; minimum age of a report

  private final Function<StackTraceElement, String> tracepoints;
  private final Consumer<StackSampler> observe;
  private final Map<String, Served> served = new ConcurrentHashMap<>(); // by trace ID
  private final Map<Thread, Served> working = new ConcurrentHashMap<>();
  private volatile boolean on;
  private volatile long started; // nanoTime; requests that began before lack samples
  private Thread sampler; // null: it never ran; the fields from here on are guarded by this
  private long until; // nanoTime
  private long reported; // nanoTime
  private final Map<List<String>, List<Served>> ended = new HashMap<>(); // by name and kind

  /**
   * Creates a sampler that is off.
   *
   * @param tracepoints returns the ID of the tracepoint of a method, null if it has none
   * @param observe makes {@link #works} and {@link #rests} hear of the contexts of threads; it is called once, when samples are wanted first
   */
  public StackSampler(Function<StackTraceElement, String> tracepoints, Consumer<StackSampler> observe) {
    this.tracepoints = tracepoints;
    this.observe = observe;
  }

  /** Samples for some seconds from now on; 0: no longer. */
  public synchronized void sample(int seconds) {
    until = System.nanoTime() + seconds * 1_000_000_000L;
    if (on || seconds == 0) {
      return;
    }
    started = System.nanoTime();
    reported = started;
    on = true;
    if (sampler == null) {
      observe.accept(this);
      sampler = new Thread(this::run, "sibyl-agent-stacks");
      sampler.setDaemon(true);
      sampler.setContextClassLoader(null); // or it would keep that of the application alive
      sampler.start();
    }
    LockSupport.unpark(sampler);
  }

  public boolean isOn() {
    return on;
  }

  /**
   * Hears which span the current thread works for from now on.
   *
   * @param first returns the request that begins with a span, null if it is not the first one in this process
   */
  public void works(String traceId, Object span, Function<Object, Served> first) {
    Served s = served.get(traceId);
    if (s == null || s.span != span) {
      Served begun = first.apply(span);
      if (begun != null && begun.nanos() <= System.nanoTime() - started && served.size() < MAX_SERVED) {
        served.put(traceId, begun);
        s = begun;
      }
    }
    if (s == null) {
      rests();
    } else {
      working.put(Thread.currentThread(), s);
    }
  }

  /** Hears that the current thread works for no request from now on. */
  public void rests() {
    working.remove(Thread.currentThread());
  }

  private void run() {
    long last = System.nanoTime();
    long spent = 0; // ns of CPU for a sample, smoothed: the pause must not depend on the stacks that were just seen
    while (!Thread.currentThread().isInterrupted()) {
      if (!isWanted()) {
        LockSupport.park(this);
        last = System.nanoTime();
        continue;
      }
      long now = System.nanoTime();
      long begin = cpuTime();
      try {
        sample(Math.min(now - last, MAX_PAUSE));
      } catch (Throwable t) { // the thread must live on: it ends the measurement
        stop();
      }
      last = now;
      spent += (cpuTime() - begin - spent) / SMOOTHING;
      LockSupport.parkNanos(Math.max(MIN_PAUSE, Math.min(MAX_PAUSE, COST * spent)));
    }
  }

  /** Returns the CPU time of the current thread in nanoseconds; the time of the clock, if the JVM does not measure it. */
  private static long cpuTime() {
    return MEASURES ? Clock.cpuTime() : System.nanoTime();
  }

  private static final boolean MEASURES = ModuleLayer.boot().findModule("java.management").isPresent();

  /** Uses a module that JVMs may lack. */
  private static final class Clock {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    static long cpuTime() {
      return THREADS.isCurrentThreadCpuTimeSupported() && THREADS.isThreadCpuTimeEnabled() ? THREADS.getCurrentThreadCpuTime() : System.nanoTime();
    }
  }

  /** Reports whether Sibyl still wants samples; otherwise it forgets the requests. */
  private synchronized boolean isWanted() {
    if (on && System.nanoTime() - until >= 0) {
      stop();
    }
    return on;
  }

  private synchronized void stop() {
    on = false;
    served.clear();
    working.clear();
  }

  /**
   * Takes a sample.
   *
   * @param nanos time since the last one: each stack stands for it
   */
  private void sample(long nanos) {
    List<Map.Entry<Thread, Served>> threads = new ArrayList<>(working.entrySet());
    long weight = nanos;
    if (threads.size() > MAX_THREADS) {
      weight = nanos * threads.size() / MAX_THREADS;
      Collections.shuffle(threads, ThreadLocalRandom.current());
      threads = threads.subList(0, MAX_THREADS);
    }
    for (Map.Entry<Thread, Served> e : threads) {
      Thread t = e.getKey();
      Served s = e.getValue();
      if (s.hasEnded() || !t.isAlive()) {
        working.remove(t, s);
        continue;
      }
      StackTraceElement[] stack = t.getStackTrace();
      if (working.get(t) == s) { // still: the stack is of this request
        add(s, stack, weight);
      }
    }
    settle();
  }

  private void add(Served s, StackTraceElement[] stack, long nanos) {
    LinkedList<String> ids = new LinkedList<>(); // outermost first
    for (StackTraceElement f : stack) {
      String id = tracepoints.apply(f);
      if (id != null && (ids.isEmpty() || !id.equals(ids.getFirst()))) {
        ids.addFirst(id);
      }
    }
    while (ids.size() > MAX_DEPTH) {
      ids.removeLast();
    }
    if (!ids.isEmpty()) {
      synchronized (this) {
        s.stacks.merge(List.copyOf(ids), nanos, Long::sum);
      }
    }
  }

  /** Keeps the requests that have ended for the next report. */
  private synchronized void settle() {
    for (Iterator<Served> all = served.values().iterator(); all.hasNext(); ) {
      Served s = all.next();
      if (!s.hasEnded()) {
        continue;
      }
      all.remove();
      List<String> operation = List.of(s.name(), s.kind());
      List<Served> kept = ended.get(operation);
      if (kept == null && Limits.isName(s.name()) && ended.size() < Limits.STACKS) {
        ended.put(operation, kept = new ArrayList<>());
      }
      if (kept != null && kept.size() < KEPT) {
        kept.add(s);
      }
    }
  }

  /**
   * Returns the calling trees of the slowest quarter of the requests that have ended since it last returned any, those of
   * the most frequent operations first. It is empty until it has sampled for some seconds.
   */
  public synchronized List<Stacks> take() {
    long now = System.nanoTime();
    if (ended.isEmpty() || now - reported < REPORT_AGE) {
      return List.of();
    }
    reported = now;
    List<Stacks> all = new ArrayList<>();
    ended.forEach((operation, requests) -> {
      requests.sort((a, b) -> Long.compare(b.nanos(), a.nanos()));
      all.add(new Stacks(operation.get(0), operation.get(1), requests.subList(0, (requests.size() + 3) / 4)));
    });
    ended.clear();
    all.sort((a, b) -> Integer.compare(b.requests, a.requests));
    int frames = 0;
    for (int i = 0; i < all.size(); i++) {
      frames += all.get(i).frames.size();
      if (frames > Limits.FRAMES) {
        return all.subList(0, i);
      }
    }
    return all;
  }
}
