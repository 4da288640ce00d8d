package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.plan.Plans;
import io.github.sibyltrace.agent.plan.Request;

/**
 * The state of a thread between hits. Its class belongs to the agent's loader, so that threads do not keep the loaders of
 * applications alive.
 */
public final class ThreadState {
  /** Whether a span is being started or ended. Span processors may be classes of the application: their spans would have spans without end. */
  public boolean busy;

  private Plans plans;
  private String traceId;
  private String text;
  private Request request;

  /** Returns the decision about a request, which is usually that of the previous hit. */
  public Request request(Plans plans, String traceId, String text) {
    if (traceId != this.traceId || plans != this.plans || text != this.text) { // the same objects within a request
      request = Request.of(plans, traceId, text, null);
      this.plans = plans;
      this.traceId = traceId;
      this.text = text;
    }
    return request;
  }
}
