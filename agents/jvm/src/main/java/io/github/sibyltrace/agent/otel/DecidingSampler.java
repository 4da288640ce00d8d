package io.github.sibyltrace.agent.otel;

import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Request;
import io.github.sibyltrace.agent.trace.Registry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.trace.data.LinkData;
import io.opentelemetry.sdk.trace.samplers.Sampler;
import io.opentelemetry.sdk.trace.samplers.SamplingDecision;
import io.opentelemetry.sdk.trace.samplers.SamplingResult;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Samples as the application's sampler does, and decides about tracepoints where a request enters the process: the
 * first span gets the plan's version and the arm, and the decision travels on in the tracestate.
 */
public final class DecidingSampler implements Sampler {
  private static final AttributeKey<Long> PLAN = AttributeKey.longKey("sibyl.plan");
  private static final AttributeKey<String> ARM = AttributeKey.stringKey("sibyl.arm");
  static final String KEY = "sibyl"; // in the tracestate

  private final Sampler sampler;
  private final Registry registry;

  /**
   * Wraps a sampler.
   *
   * @param sampler a {@link Sampler}; declared as an object because the caller does not see OpenTelemetry
   */
  public DecidingSampler(Object sampler, Registry registry) {
    this.sampler = (Sampler) sampler;
    this.registry = registry;
  }

  @Override
  public SamplingResult shouldSample(Context parent, String traceId, String name, SpanKind kind, Attributes attributes, List<LinkData> links) {
    SamplingResult result = sampler.shouldSample(parent, traceId, name, kind, attributes, links);
    SpanContext above = Span.fromContext(parent).getSpanContext();
    if (above.isValid() && !above.isRemote()) {
      return result;
    }
    Plan.Entry entry = new Plan.Entry(registry.service, name, kind.name().toLowerCase(Locale.ROOT), key -> find(attributes, key));
    return new Decided(result, Request.of(registry.plans(), traceId, above.getTraceState().get(KEY), entry));
  }

  /** Returns the formatted value of an attribute, null if there is none. */
  private static String find(Attributes attributes, String key) {
    for (Map.Entry<AttributeKey<?>, Object> a : attributes.asMap().entrySet()) {
      if (a.getKey().getKey().equals(key)) {
        return String.valueOf(a.getValue());
      }
    }
    return null;
  }

  @Override
  public String getDescription() {
    return sampler.getDescription();
  }

  private static final class Decided implements SamplingResult {
    private final SamplingResult result;
    private final Request request;

    Decided(SamplingResult result, Request request) {
      this.result = result;
      this.request = request;
    }

    @Override
    public SamplingDecision getDecision() {
      return result.getDecision();
    }

    @Override
    public Attributes getAttributes() {
      AttributesBuilder b = result.getAttributes().toBuilder().put(PLAN, request.version);
      return (request.arm == null ? b : b.put(ARM, request.arm.name)).build();
    }

    @Override
    public TraceState getUpdatedTraceState(TraceState parent) {
      return result.getUpdatedTraceState(parent).toBuilder().put(KEY, request.text).build();
    }
  }
}
