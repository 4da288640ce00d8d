package io.github.sibyltrace.agent.profile;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.sibyltrace.agent.bridge.Activation;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class ThreadProfileTest {
  private final MethodProbe a = new MethodProbe(null, 0, "a");
  private final MethodProbe b = new MethodProbe(null, 1, "b");
  private final ThreadProfile thread = new ThreadProfile(Thread.currentThread());

  private static Profile profile(ThreadProfile... threads) {
    return new Profile(1, List.of(threads).stream().map(t -> t.root).collect(Collectors.toList()), List.of());
  }

  private static Profile.Method method(Profile p, String name) {
    return p.methods.stream().filter(m -> m.name.equals(name)).findFirst().orElseThrow();
  }

  /** Calls a, which calls itself and b, to the given depth. */
  private void recurse(int depth) {
    Activation outer = thread.enter(a);
    if (depth > 0) {
      recurse(depth - 1);
    }
    thread.enter(b).exit(null);
    outer.exit(depth % 2 == 0 ? null : new Exception());
  }

  @Test
  void countsRecursiveCallsExactly() {
    recurse(99);
    Profile p = profile(thread);
    assertEquals(100, method(p, "a").calls);
    assertEquals(100, method(p, "b").calls);
    assertEquals(method(p, "a").total, method(p, "a").own + method(p, "b").own, "the outermost call spans all others");
    assertEquals(200, p.stacks.size());
  }

  @Test
  void staysExactBeyondTheLimitOfDepth() {
    recurse(5000);
    Profile p = profile(thread);
    assertEquals(5001, method(p, "a").calls);
    assertEquals(5001, method(p, "b").calls);
    assertTrue(p.stacks.size() < 3000, p.stacks.size() + " contexts");
  }

  @Test
  void recoversFromALostExit() {
    Activation outer = thread.enter(a);
    thread.enter(b); // an asynchronous exception keeps it from exiting
    outer.exit(null);
    thread.enter(b).exit(null);
    assertTrue(profile(thread).stacks.containsKey("b"));
  }

  @Test
  void mergesThreads() {
    recurse(3);
    ThreadProfile sum = new ThreadProfile(null);
    sum.merge(thread);
    sum.merge(thread);
    Profile once = profile(thread);
    Profile twice = profile(sum);
    assertEquals(2 * method(once, "a").calls, method(twice, "a").calls);
    assertEquals(2 * method(once, "b").own, method(twice, "b").own);
    assertEquals(2 * method(once, "a").total, method(twice, "a").total);
  }
}
