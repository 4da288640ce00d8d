package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Probe;

/** Measures the calls of a method. */
class MethodProbe extends Probe {
  final int number; // from 0, in one profile
  final String name;
  private final Profiler profiler;

  MethodProbe(Profiler profiler, int number, String name) {
    this.profiler = profiler;
    this.number = number;
    this.name = name;
  }

  @Override
  public Activation enter() {
    return profiler.current().enter(this);
  }

  /** Also prints each call with its callers. */
  static final class Traced extends MethodProbe {
    private final Output output;

    Traced(Profiler profiler, int number, String name, Output output) {
      super(profiler, number, name);
      this.output = output;
    }

    @Override
    public Activation enter() {
      output.call(name);
      return super.enter();
    }
  }
}
