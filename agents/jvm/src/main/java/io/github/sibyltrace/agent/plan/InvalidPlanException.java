package io.github.sibyltrace.agent.plan;

/** Reports a plan that cannot be applied. */
public final class InvalidPlanException extends Exception {
  private static final long serialVersionUID = 1;

  InvalidPlanException(String message) {
    super(message);
  }
}
