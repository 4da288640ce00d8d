package io.github.sibyltrace.agent.stacks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

class StackSamplerTest {
  private static final long MS = 1_000_000;

  /** A request with the duration that it is given. */
  private static final class Given extends Served {
    final String name;
    volatile long nanos;
    volatile boolean ended;

    Given(String name, long nanos) {
      super(new Object());
      this.name = name;
      this.nanos = nanos;
    }

    @Override
    protected String name() {
      return name;
    }

    @Override
    protected String kind() {
      return "server";
    }

    @Override
    protected boolean hasEnded() {
      return ended;
    }

    @Override
    protected long nanos() {
      return nanos;
    }
  }

  @Test
  void addsUpStacks() {
    Given a = new Given("op", 100 * MS);
    a.stacks.put(List.of("f", "g"), 30 * MS);
    a.stacks.put(List.of("f"), 10 * MS);
    Given b = new Given("op", 20 * MS);
    b.stacks.put(List.of("f", "g"), 50 * MS); // samples may add up to more than the request took
    b.stacks.put(List.of("g"), 5 * MS);
    Stacks s = new Stacks("op", "server", List.of(a, b));
    StringBuilder text = new StringBuilder();
    long[] byId = new long[4];
    for (Stacks.Frame f : s.frames) {
      int i = f.id == null ? 0 : f.id.equals("f") ? 1 : f.caller == 0 ? 3 : 2;
      byId[i] += f.nanos() / MS;
      text.append(f.id).append(f.caller).append(' ');
    }
    assertEquals(4, s.frames.size(), text.toString());
    assertEquals(List.of(60L, 10L, 80L, 5L), List.of(byId[0], byId[1], byId[2], byId[3]), text.toString());
    assertEquals(2, s.requests);
  }

  @Test
  void observesOnceAndForgets() throws Exception {
    AtomicInteger observed = new AtomicInteger();
    StackSampler sampler = new StackSampler(f -> f.getMethodName().equals("busy") ? "busy" : null, x -> observed.incrementAndGet());
    assertFalse(sampler.isOn());
    sampler.sample(0);
    assertEquals(0, observed.get());
    sampler.sample(60);
    sampler.sample(60);
    assertTrue(sampler.isOn());
    Given r = new Given("op", 0);
    Given before = new Given("before", 3600_000 * MS); // it began before the samples
    Thread worker = new Thread(() -> {
      sampler.works("1", before.span, first(before));
      sampler.works("2", r.span, first(r));
      busy();
      r.nanos = 300 * MS;
      r.ended = true;
      sampler.rests();
    });
    worker.start();
    worker.join();
    List<Stacks> all = List.of();
    for (int i = 0; i < 600 && all.isEmpty(); i++) {
      Thread.sleep(50);
      all = sampler.take();
    }
    assertEquals(1, all.size());
    assertEquals("op", all.get(0).operation);
    assertEquals(2, all.get(0).frames.size());
    assertEquals(1, observed.get());
    sampler.sample(0);
    for (int i = 0; i < 600 && sampler.isOn(); i++) {
      Thread.sleep(50);
    }
    assertFalse(sampler.isOn());
  }

  private static Function<Object, Served> first(Served s) {
    return span -> span == s.span ? s : null;
  }

  private static void busy() {
    try {
      Thread.sleep(1500); // samples are at most a second apart
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
