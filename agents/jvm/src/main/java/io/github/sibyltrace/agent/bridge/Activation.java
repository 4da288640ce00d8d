package io.github.sibyltrace.agent.bridge;

/** One execution of an instrumented method, from its entry to its exit. */
public abstract class Activation {
  /** Handles an argument, captured at the entry. */
  public void argument(int index, Object value) {}

  /** Handles the value that the method returns. */
  public void result(Object value) {}

  /**
   * Handles the exit.
   *
   * @param thrown what the method throws; null: it returns
   */
  public abstract void exit(Throwable thrown);
}
