package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.own.OwnSpans;
import io.github.sibyltrace.agent.plan.Plans;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.plan.TestPlans;
import io.github.sibyltrace.agent.plan.Tracepoint;
import java.util.List;
import org.junit.jupiter.api.Test;

class PointTest {
  private static final int LIMIT = 1000;

  @Test
  void tellsThatManyHitsAreMissing() throws Exception {
    Log log = new Log(System.err, Log.Level.WARN);
    OwnClasses own = new OwnClasses(null, null, null, new Classifier("app.Main", List.of()));
    Selection nothing = new Selection(name -> false, name -> false, false);
    Registry registry = new Registry("shop", own, nothing, LIMIT, 0, TestAgent.instrumentation(), new Otel(new OwnSpans(null, null), log), log);
    Point p = new Point(Tracepoint.ofMethod("shop", "app.Work", "handle(int)", false), null, registry, LIMIT);
    Request request = Request.of(Plans.NONE.with(TestPlans.of(1, p.tracepoint.id)), "4bf92f35000000000000000000000036", null, null);

    assertEquals("", p.judge());
    hit(p, request, LIMIT / 2, true);
    hit(p, request, 10 * LIMIT, false); // of requests that are not sampled
    assertEquals("", p.judge());
    hit(p, request, 10 * LIMIT, true);
    assertTrue(p.judge().contains("beyond the limit of spans a second"));
    assertEquals("", p.judge(), "nothing has happened since");
    assertEquals(20 * LIMIT + LIMIT / 2, p.hits());
  }

  private static void hit(Point p, Request request, int n, boolean sampled) {
    for (int i = 0; i < n; i++) {
      p.hit(request, sampled);
    }
  }
}
