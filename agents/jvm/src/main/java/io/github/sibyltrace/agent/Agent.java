package io.github.sibyltrace.agent;

import io.github.sibyltrace.agent.profile.Profiler;
import io.github.sibyltrace.agent.profile.ProfilerOptions;
import java.lang.instrument.Instrumentation;

/** Starts the profiler or the agent of a Sibyl service, as the arguments say. */
public final class Agent {
  private Agent() {}

  /**
   * Starts what the arguments name. Errors are logged: the application runs on without the agent.
   *
   * @param arguments see {@link Arguments}; may be null
   */
  public static void start(String arguments, Instrumentation instrumentation) {
    Log log = new Log(System.err, Log.Level.WARN);
    try {
      Arguments a = Arguments.parse(arguments == null ? "" : arguments);
      log.setLevel(a.level());
      if (a.has("p", "classes")) {
        Profiler.start(ProfilerOptions.of(a), instrumentation, log);
      } else {
        log.error("nothing to do: give p:REGEXP for a profile or endpoint:URL for a Sibyl service");
      }
    } catch (IllegalArgumentException e) {
      log.error(e.getMessage());
    } catch (Throwable t) {
      log.error("cannot start", t);
    }
  }
}
