package file

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/jaeger/translate"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/ingest/zipkin"
	"github.com/sibyl-trace/sibyl/trace"
)

// ReadOTLP reads paths as [Read] does, but preserves all data of the spans: it calls take with each record, as OTLP, in
// the order of the input. It ignores the options Keys, Workers, Memory and TempDir. It returns an error in the same
// cases as Read, or if take fails.
//
// ReadOTLP decodes protobuf with the collector's decoder, which accepts or rejects a record as a whole and recurses
// into nested values. It must not be used with untrusted input.
func ReadOTLP(ctx context.Context, paths []string, options Options, take func(ptrace.Traces) error) (Summary, error) {
	sources, err := list(paths)
	if err != nil {
		return Summary{}, err
	}
	r := &pipeline{
		options: options.withDefaults(),
		input:   &Input{Summary: Summary{Rejected: make(map[trace.Reason]Count)}},
	}
	for _, s := range sources {
		r.total.Add(s.size)
	}
	summary := &r.input.Summary
	for _, s := range sources {
		broken := func(reason trace.Reason, err error, at position) error {
			return r.count(at.failed(s.path, reason, err))
		}
		record := func(data []byte, f format, at position) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if r.options.Progress != nil {
				r.options.Progress(Progress{s.path, r.read.Load(), r.total.Load()})
			}
			if f == otherSignal {
				return nil
			}
			traces, rejected, err := decodeOTLP(data, f)
			if err != nil {
				return broken(trace.Malformed, err, at)
			}
			for _, left := range rejected {
				b := at.failed(s.path, left.Reason, errors.New(left.Detail))
				b.Spans = left.Spans
				if err := r.count(b); err != nil {
					return err
				}
			}
			summary.Records++
			summary.Spans += int64(traces.SpanCount())
			return take(traces)
		}
		if err := r.splitFile(ctx, s, record, broken); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return *summary, err
		}
	}
	return *summary, nil
}

// decodeOTLP decodes data, a record in format f, completely except for rejected spans.
func decodeOTLP(data []byte, f format) (traces ptrace.Traces, rejected []ingest.Rejection, err error) {
	switch f {
	case jaegerJSON:
		traces, err = translate.JSON(data)
		return traces, nil, err
	case zipkinJSON:
		data, rejected, err = zipkin.Translate(data)
	case otlpResource:
		data, err = otlp.FromJSON(slices.Concat([]byte(`{"resourceSpans":[`), data, []byte("]}")))
	case otlpJSON:
		data, err = otlp.FromJSON(data)
	case unknown, otherSignal:
		err = noTraces(data)
	case otlpProtobuf:
	}
	if err != nil {
		return ptrace.Traces{}, nil, err
	}
	traces, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	return traces, rejected, err
}
