package io.github.sibyltrace.agent.plan;

/** Makes plans for tests. */
public final class TestPlans {
  private TestPlans() {}

  /** Returns a plan that enables tracepoints, ascending by ID, for all requests. */
  public static Plan of(long version, String... ids) throws InvalidPlanException {
    Encoder e = new Encoder("sibyl plan 1");
    e.integer(version);
    e.integer(60); // lease
    e.integer(0); // filters
    e.integer(1); // arms
    e.string("a");
    e.decimal(1);
    e.integer(ids.length);
    StringBuilder list = new StringBuilder();
    for (String id : ids) {
      e.string(id);
      e.decimal(1);
      e.integer(0);
      list.append(list.length() == 0 ? "" : ",").append("{\"id\":\"").append(id).append("\",\"rate\":1}");
    }
    return Plan.decode(
        "{\"protocol\":1,\"version\":" + version + ",\"hash\":\"" + e.sum() + "\",\"lease_seconds\":60,\"arms\":[{\"name\":\"a\",\"share\":1,\"tracepoints\":[" + list + "]}]}");
  }
}
