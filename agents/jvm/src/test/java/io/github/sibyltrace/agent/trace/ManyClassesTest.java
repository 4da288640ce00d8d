package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import app.Work;
import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.own.OwnSpans;
import io.github.sibyltrace.agent.plan.TestPlans;
import java.util.List;
import java.util.function.LongUnaryOperator;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Enables methods of 100 classes at once. With the system property soak it must take less than two seconds. */
class ManyClassesTest {
  private static final int CLASSES = 100;

  @Test
  void changeTogether() throws Exception {
    Copies copies = new Copies(CLASSES);
    String[] ids = new String[CLASSES];
    LongUnaryOperator[] works = new LongUnaryOperator[CLASSES];
    for (int i = 0; i < CLASSES; i++) {
      Class<?> c = copies.loadClass("app.copy.Work" + i);
      works[i] = (LongUnaryOperator) c.getConstructor().newInstance();
      ids[i] = "shop/" + c.getName() + ".handle(int)";
    }
    Log log = new Log(System.err, Log.Level.WARN);
    Otel otel = new Otel(new OwnSpans(null, null), log);
    OwnClasses own = new OwnClasses(Pattern.compile("app\\.copy\\..*"), null, null, new Classifier("app.Main", List.of()));
    Registry registry = new Registry("shop", own, new Selection(name -> false, name -> false, false), 1000, 0, TestAgent.instrumentation(), otel, log);
    registry.start();
    registry.scan();
    assertEquals(8 * CLASSES, registry.catalogue().size());

    long want = new Work().applyAsLong(9);
    for (int round = 0; round < 3; round++) {
      long begin = System.nanoTime();
      registry.apply(TestPlans.of(2 * round + 1, ids));
      long enabled = System.nanoTime();
      assertEquals(CLASSES, registry.outcomes().stream().filter(o -> o.state.equals("applied")).count());
      for (LongUnaryOperator w : works) {
        assertEquals(want, w.applyAsLong(9));
      }
      long called = System.nanoTime();
      registry.apply(null);
      long disabled = System.nanoTime();
      System.out.printf("%d classes: enabled in %d ms, disabled in %d ms%n", CLASSES, (enabled - begin) / 1_000_000, (disabled - called) / 1_000_000);
      assertTrue(System.getProperty("soak") == null || enabled - begin < 2_000_000_000L, "took longer than 2 s");
    }
  }
}
