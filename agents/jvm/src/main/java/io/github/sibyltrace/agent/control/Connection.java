package io.github.sibyltrace.agent.control;

import io.github.sibyltrace.agent.plan.InvalidPlanException;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.stacks.Stacks;
import io.github.sibyltrace.agent.trace.Registry;
import java.io.IOException;
import java.util.List;

/** A connection with a Sibyl service, which two threads use. */
interface Connection {
  /**
   * Sends the description of the agent and its catalogue, as far as Sibyl lacks it.
   *
   * @param stacks whether the agent can sample stacks
   */
  void register(List<Tracepoint> catalogue, boolean stacks) throws IOException;

  /** Chooses another ID, because another agent has the present one. */
  void renewId();

  /**
   * Waits for a plan with another hash than the given one, null for any. It returns null if there is none within the
   * wait, and gives up a connection that is silent for longer than the wait allows, or for the given time.
   */
  Plan plan(String hash, int waitSeconds, long mostMillis) throws IOException, InvalidPlanException;

  /**
   * Reports the states of tracepoints.
   *
   * @param plan null: the baseline
   * @param error why the last plan was rejected; "": it was not
   * @return the seconds for which Sibyl wants stacks from now on; 0: no longer
   */
  int status(Plan plan, String error, List<Registry.Outcome> outcomes, List<Stacks> stacks) throws IOException;
}
