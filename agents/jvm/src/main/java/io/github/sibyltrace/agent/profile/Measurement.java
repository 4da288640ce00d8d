package io.github.sibyltrace.agent.profile;

import java.io.IOException;

/** Measures the calls of the methods of chosen classes. */
interface Measurement {
  /** Starts. It calls atExit when the JVM ends, while {@link #profile} still works. */
  void start(Runnable atExit);

  /** Returns the sums since the start. */
  Profile profile() throws IOException;

  /** Ends the measurement, after which methods are as fast as before. */
  void stop();
}
