package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Probe;

/** Measures the calls of a method. */
class MethodProbe extends Probe {
  final int number; // from 0, in one profile
  final String name;
  private final WovenMeasurement measurement;

  MethodProbe(WovenMeasurement measurement, int number, String name) {
    this.measurement = measurement;
    this.number = number;
    this.name = name;
  }

  @Override
  public Activation enter() {
    return measurement.current().enter(this);
  }

  /** Also prints each call with its callers. */
  static final class Traced extends MethodProbe {
    private final Output output;

    Traced(WovenMeasurement measurement, int number, String name, Output output) {
      super(measurement, number, name);
      this.output = output;
    }

    @Override
    public Activation enter() {
      output.call(name);
      return super.enter();
    }
  }
}
