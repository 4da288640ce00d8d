package io.github.sibyltrace.agent.weave;

/** The instrumentation of one method. */
public final class Hook {
  final int probe;
  final boolean values;

  /**
   * @param probe index of the probe in the bridge
   * @param values whether to pass arguments and the returned value
   */
  public Hook(int probe, boolean values) {
    this.probe = probe;
    this.values = values;
  }
}
