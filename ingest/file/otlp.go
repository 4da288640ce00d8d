package file

import (
	"bytes"
	"context"
	"encoding/json"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/jaeger/translate"
	"github.com/sibyl-trace/sibyl/trace"
)

// ReadOTLP reads paths as [Read] does, but preserves all data of the spans: it passes each record, as OTLP, to take, in
// the order of the input. It ignores the options Keys, Workers, Memory and TempDir. It returns the errors of Read and
// of take.
//
// It uses the collector's decoder, which accepts or rejects a record as a whole and recurses into nested values.
// ReadOTLP must not be used with untrusted input.
func ReadOTLP(ctx context.Context, paths []string, options Options, take func(ptrace.Traces) error) (Summary, error) {
	sources, err := list(paths)
	if err != nil {
		return Summary{}, err
	}
	r := &pipeline{options: options.withDefaults(), input: &Input{Summary: Summary{Rejected: make(map[trace.Reason]Count)}}}
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
			traces, err := decodeOTLP(data, f)
			if err != nil {
				return broken(trace.Malformed, err, at)
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

// decodeOTLP decodes a record without loss.
func decodeOTLP(data []byte, f format) (ptrace.Traces, error) {
	switch f {
	case otlpProtobuf:
		return (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	case jaegerJSON:
		return translate.JSON(data)
	case otlpResource:
		data = append(append([]byte(`{"resourceSpans":[`), data...), "]}"...)
	case otlpJSON:
		data = unwrapEnvelope(data)
	case unknown, otherSignal:
		return ptrace.Traces{}, errNoTraces
	}
	return (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
}

// unwrapEnvelope removes the envelope of Jaeger's API from a request, if it has one.
func unwrapEnvelope(data []byte) []byte {
	if bytes.HasPrefix(data, []byte(`{"resourceSpans"`)) {
		return data
	}
	var envelope struct{ Result json.RawMessage }
	if json.Unmarshal(data, &envelope) != nil || !bytes.HasPrefix(envelope.Result, []byte("{")) {
		return data
	}
	return envelope.Result
}
