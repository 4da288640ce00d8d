package io.github.sibyltrace.agent.bridge;

/** Handles the executions of one instrumented method or constructor. */
public abstract class Probe {
  /** Handles an entry. It returns null if the exit is of no interest. */
  public Activation enter() {
    return null;
  }

  /** Handles an object whose constructor has called that of its superclass. */
  public void constructed(Object object) {}
}
