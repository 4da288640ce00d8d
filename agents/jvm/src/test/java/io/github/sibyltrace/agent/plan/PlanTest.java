package io.github.sibyltrace.agent.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The expected values are those of agents/tracepoint/protocol/protocol_test.go. */
class PlanTest {
  private static final String PLAN =
      "{\"protocol\":1,\"version\":17,\"hash\":\"abc117220e9f0681c5324588eb957fa8\",\"lease_seconds\":60,"
          + "\"filters\":[{\"operation\":\"GET /cart\"},"
          + "{\"service\":\"shop\",\"span_kind\":\"server\",\"attributes\":{\"tenant\":\"a\",\"region\":\"eu\"}}],"
          + "\"arms\":[{\"name\":\"a\",\"share\":0.25,\"tracepoints\":["
          + "{\"id\":\"shop/cart.price\",\"rate\":1},{\"id\":\"shop/cart.size\",\"rate\":0.5,\"filter\":2}]},"
          + "{\"name\":\"b\",\"share\":0.5,\"tracepoints\":[]},"
          + "{\"name\":\"c\",\"share\":0.01,\"tracepoints\":[]}]}";

  @Test
  void derivesTheSameRandomnessAsOtherAgents() {
    assertEquals(0x47bc1441ce3b6609L, Randomness.of("4bf92f35000000000000000000000036"));
  }

  @Test
  void decidesAboutRequests() throws InvalidPlanException {
    Plans plans = Plans.NONE.with(Plan.decode(PLAN));
    Plan.Entry eu = new Plan.Entry("shop", "GET /cart", "server", key -> key.equals("tenant") ? "a" : "eu");
    int inA = 0;
    int sized = 0;
    for (int i = 0; i < 10_000; i++) {
      Request r = Request.of(plans, String.format("%032x", i), null, eu);
      boolean a = r.arm != null && r.arm.name.equals("a");
      inA += a ? 1 : 0;
      sized += r.enables("shop/cart.size") ? 1 : 0;
      assertEquals(a, r.enables("shop/cart.price"));
      Request followed = Request.of(plans, String.format("%032x", i), r.text, null);
      assertEquals(r.text, followed.text);
      assertEquals(r.enables("shop/cart.size"), followed.enables("shop/cart.size"));
    }
    assertEquals(2500, inA, 200);
    assertEquals(1250, sized, 200);
    Plan.Entry elsewhere = new Plan.Entry("shop", "GET /cart", "server", key -> null);
    for (int i = 0; i < 100; i++) {
      assertFalse(Request.of(plans, String.format("%032x", i), null, elsewhere).enables("shop/cart.size"));
    }
  }

  @Test
  void refusesBrokenPlans() {
    for (String json : new String[] {"", "null", "[]", "{}", "{\"protocol\":2}", "{\"protocol\":1,\"arms\":[1]}", "{\"protocol\":1,\"version\":1,\"lease_seconds\":1,\"arms\":{}}",
        PLAN.replace("0.25", "1.5"), PLAN.replace("\"rate\":1", "\"rate\":0"), PLAN.replace("\"filter\":2", "\"filter\":3"), PLAN.replace(":60", ":0"), PLAN.replace("GET /cart", "GET /card")}) {
      assertThrows(InvalidPlanException.class, () -> Plan.decode(json), json);
    }
  }

  @Test
  void followsDecisions() {
    Request r = Request.of(Plans.NONE, "4bf92f35000000000000000000000036", "17-b-1", null);
    assertEquals(0, r.version); // the plan is unknown here
    assertEquals("17-b-1", r.text); // and is passed on
    assertFalse(r.enables("shop/A.m()"));
    for (String text : new String[] {"", "x", "17-b-g", "-1-"}) {
      assertNotNull(Request.of(Plans.NONE, "4bf92f35000000000000000000000036", text, null), text);
    }
  }

  @Test
  void printsReasons() {
    assertEquals("a?b", Limits.reason("a\nb"));
    assertEquals(Limits.REASON, Limits.reason("x".repeat(5000)).length());
    assertTrue(Limits.isName("shop/a.B.c(int)"));
    assertFalse(Limits.isName("a\u0000b"));
    assertFalse(Limits.isName("é".repeat(200)));
  }
}
