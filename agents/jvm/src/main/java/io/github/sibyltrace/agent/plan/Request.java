package io.github.sibyltrace.agent.plan;

/** The decision about one request. The first agent that the request reaches decides; the others follow. */
public final class Request {
  public final long version; // of the plan; 0: none
  public final Plan.Arm arm; // null: only the baseline is enabled
  public final String text; // value in the tracestate
  private final long randomness;
  private final long filters;

  private Request(long version, Plan.Arm arm, long filters, long randomness, String text) {
    this.version = version;
    this.arm = arm;
    this.filters = filters;
    this.randomness = randomness;
    this.text = text;
  }

  /**
   * Returns the request with the given trace ID.
   *
   * @param text the decision of another agent, from the tracestate; null: there is none
   * @param entry the entry span; null: it is unknown, and no filter matches
   */
  public static Request of(Plans plans, String traceId, String text, Plan.Entry entry) {
    Request followed = text == null ? null : follow(plans, traceId, text);
    return followed != null ? followed : decide(plans.current, traceId, entry);
  }

  private static Request decide(Plan plan, String traceId, Plan.Entry entry) {
    if (plan == null) {
      return new Request(0, null, 0, 0, "0");
    }
    long randomness = Randomness.of(traceId);
    Plan.Arm arm = plan.armOf(randomness);
    long filters = entry == null ? 0 : plan.match(entry);
    String text = Long.toString(plan.version);
    if (arm != null) {
      text += "-" + arm.name + (filters == 0 ? "" : "-" + Long.toHexString(filters));
    }
    return new Request(plan.version, arm, filters, randomness, text);
  }

  /** Returns null if the text is not valid. */
  private static Request follow(Plans plans, String traceId, String text) {
    try {
      String[] parts = text.split("-", 3);
      long version = Long.parseLong(parts[0]);
      long filters = parts.length > 2 ? Long.parseUnsignedLong(parts[2], 16) : 0;
      Plan plan = plans.of(version);
      if (plan == null) {
        return new Request(0, null, filters, 0, text);
      }
      Plan.Arm arm = parts.length > 1 ? plan.arm(parts[1]) : null;
      return new Request(version, arm, filters, Randomness.of(traceId), text);
    } catch (NumberFormatException e) {
      return null;
    }
  }

  /** Reports whether a tracepoint is enabled for the request. */
  public boolean enables(String id) {
    Plan.Enabled e = arm == null ? null : arm.enabled.get(id);
    return e != null && (e.filter == 0 || (e.filter & filters) != 0) && Randomness.passes(randomness, e.rate);
  }
}
