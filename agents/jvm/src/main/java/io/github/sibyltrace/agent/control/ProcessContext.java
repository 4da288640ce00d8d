package io.github.sibyltrace.agent.control;

import java.util.Map;

/** The process context of OTEP 4719, by which other programs of the machine know the service of this process. */
public final class ProcessContext {
  private ProcessContext() {}

  /** Returns the message with a resource. */
  public static byte[] of(Map<String, String> resource) {
    Protobuf attributes = new Protobuf();
    resource.forEach((key, value) -> attributes.message(1, new Protobuf().text(1, key).message(2, new Protobuf().text(1, value))));
    return new Protobuf().message(1, attributes).toBytes();
  }
}
