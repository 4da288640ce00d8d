package io.github.sibyltrace.agent.control;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.plan.InvalidPlanException;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.stacks.StackSampler;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * Applies the plans of Sibyl for as long as their leases last, with two threads: one waits for plans, the other reports
 * their states and new classes.
 */
public final class Follower {
  private static final int MAX_WAIT = 30; // s, for a plan; never more than a third of the lease
  private static final long STATUS_INTERVAL = 10_000; // ms
  private static final long SCAN_INTERVAL = 2_000; // ms, between looks for new classes
  private static final long MIN_BACKOFF = 500; // ms
  private static final long MAX_BACKOFF = 30_000; // ms
  private static final long MIN_CHANGE_INTERVAL = 2_000; // ms between plans: each stops the application's threads for a moment
  private static final long MIN_POLL = 1_000; // ms; an earlier "not modified" comes from a server that does not support long polling

  private final Connection client;
  private final Registry registry;
  private final StackSampler sampler; // null: none
  private final Log log;
  private final Object registering = new Object(); // two registrations must not overtake each other
  private final AtomicBoolean statusDue = new AtomicBoolean();
  private volatile boolean registered;
  private volatile boolean catalogueChanged;
  private volatile String planError = "";
  private volatile Thread reporter;

  // The state of the thread that waits for plans.
  private Plan plan; // null: none
  private long expires; // nanoTime
  private long changed; // nanoTime of the last change
  private int wait = MAX_WAIT;
  private long backoff = MIN_BACKOFF;
  private boolean failing;

  /**
   * Creates a follower.
   *
   * @param sampler of stacks; null: none
   */
  public Follower(Settings settings, Registry registry, StackSampler sampler, Log log) {
    this.client = settings.opamp == null ? new Client(settings) : new OpAmp(settings);
    this.registry = registry;
    this.sampler = sampler;
    this.log = log;
  }

  /** Starts the threads. They end with the JVM. */
  public void start() {
    reporter = daemon("sibyl-agent-status", this::report);
    daemon("sibyl-agent-plan", this::follow);
  }

  private static Thread daemon(String name, Runnable action) {
    Thread t = new Thread(action, name);
    t.setDaemon(true);
    t.setContextClassLoader(null); // or it would keep that of the application alive
    t.start();
    return t;
  }

  private void follow() {
    while (!Thread.currentThread().isInterrupted()) {
      Quiet.run(this::step);
    }
  }

  /** Waits for one plan. */
  private void step() {
    long retryAfter = 0;
    Throwable failure = null;
    try {
      poll();
    } catch (Http.RefusedException e) {
      failure = e;
      retryAfter = e.retryAfter * 1000L;
      if (e.code == HttpURLConnection.HTTP_CONFLICT) {
        client.renewId();
        retryAfter = 0; // the new ID can register at once
      }
      if (e.code == HttpURLConnection.HTTP_NOT_FOUND || e.code == HttpURLConnection.HTTP_CONFLICT) {
        registered = false;
        backoff = MIN_BACKOFF;
      }
    } catch (InvalidPlanException e) {
      failure = e;
      planError = e.getMessage();
      reportSoon();
    } catch (Throwable t) { // the thread must live on: it ends leases
      failure = t;
    }
    if (plan != null && System.nanoTime() - expires >= 0) {
      log.warn("the lease of the plan has expired");
      apply(null);
    }
    if (failure != null) {
      pauseAfter(failure, retryAfter);
    }
  }

  private void poll() throws IOException, InvalidPlanException {
    if (!registered) {
      register();
    }
    long sent = System.nanoTime();
    Plan next = plan == null ? client.plan(null, wait, Long.MAX_VALUE) : client.plan(plan.hash, wait, millisLeft());
    boolean unchanged = next == null || plan != null && next.hash.equals(plan.hash);
    if (unchanged && plan == null) {
      throw new IOException("the server does not send a plan");
    }
    long lease = (unchanged ? plan : next).leaseSeconds * 1_000_000_000L;
    expires = System.nanoTime() + lease;
    if (unchanged && millisSince(sent) < Math.min(MIN_POLL, wait * 500L)) {
      throw new IOException("the server does not support long polling");
    }
    recovered();
    if (!unchanged) {
      pause(MIN_CHANGE_INTERVAL - millisSince(changed));
      apply(next);
      changed = System.nanoTime();
      wait = Math.max(1, Math.min(MAX_WAIT, next.leaseSeconds / 3));
    }
  }

  /** Returns the time until the lease of the plan ends, at least 1. */
  private long millisLeft() {
    return Math.max(1, (expires - System.nanoTime()) / 1_000_000);
  }

  private static long millisSince(long time) {
    return (System.nanoTime() - time) / 1_000_000;
  }

  private void apply(Plan next) {
    registry.apply(next);
    plan = next;
    planError = "";
    reportSoon();
  }

  private void register() throws IOException {
    synchronized (registering) {
      registry.scan();
      catalogueChanged = false;
      try {
        client.register(registry.catalogue(), sampler != null);
        registered = true;
      } catch (IOException e) {
        catalogueChanged = true;
        throw e;
      }
    }
  }

  private void recovered() {
    if (failing) {
      log.warn("the connection to Sibyl has recovered");
    }
    failing = false;
    backoff = MIN_BACKOFF;
  }

  /** Waits as long as the backoff or Retry-After says, but not beyond the lease. */
  private void pauseAfter(Throwable cause, long retryAfter) {
    if (!failing) {
      log.warn("cannot get a plan from Sibyl: " + cause);
    }
    failing = true;
    long ms = Math.max(retryAfter, backoff / 2 + ThreadLocalRandom.current().nextLong(backoff)); // jitter keeps agents from returning together
    backoff = Math.min(2 * backoff, MAX_BACKOFF);
    if (plan != null) {
      ms = Math.min(ms, millisLeft());
    }
    pause(ms);
  }

  private static void pause(long ms) {
    if (ms > 0) {
      LockSupport.parkNanos(ms * 1_000_000);
    }
  }

  private void reportSoon() {
    statusDue.set(true);
    LockSupport.unpark(reporter);
  }

  /** Reports states and new classes until the JVM ends. */
  private void report() {
    long last = System.nanoTime();
    while (!Thread.currentThread().isInterrupted()) {
      pause(SCAN_INTERVAL);
      catalogueChanged |= registry.scan();
      registry.restore();
      boolean due = statusDue.getAndSet(false) || millisSince(last) >= STATUS_INTERVAL;
      if (registered && (due || catalogueChanged)) {
        Quiet.run(() -> send(due));
      }
      last = due ? System.nanoTime() : last;
    }
  }

  private void send(boolean status) {
    try {
      if (catalogueChanged) {
        register();
      }
      if (status) {
        int seconds = client.status(registry.plans().current, planError, registry.outcomes(), sampler == null ? List.of() : sampler.take());
        if (sampler != null) {
          sampler.sample(seconds);
        }
      }
    } catch (Throwable t) { // the next status replaces this one
      log.debug("cannot report to Sibyl: " + t);
    }
  }
}
