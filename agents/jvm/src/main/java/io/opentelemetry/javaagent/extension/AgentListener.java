package io.opentelemetry.javaagent.extension;

import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;

/**
 * The one interface of the extension API of OpenTelemetry's Java agent that we use, whose artifact exists as unstable
 * versions only. The jar does not contain it: OpenTelemetry's Java agent does.
 */
public interface AgentListener {
  void afterAgent(AutoConfiguredOpenTelemetrySdk sdk);

  default int order() {
    return 0;
  }
}
