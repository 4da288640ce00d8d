package throughput

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Shape of the decoded requests.
const (
	attributesPerSpan = 10
	tracesPerRequest  = 20
)

// wantedKeys lists the attributes that decoders keep. Spans have only some of them.
var wantedKeys = []string{
	"http.response.status_code", "url.path", "server.address", "http.response.body.size", "db.system",
	"messaging.system",
	"error.type", "tenant",
}

// Decode compares Sibyl's decoder of OTLP with the Collector's, pdata, on the same input.
func Decode(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	result := &Result{Benchmark: "decode"}
	for _, format := range []string{"protobuf", "JSON"} {
		in, err := o.requests(format)
		if err != nil {
			return nil, err
		}
		result.Input = units.Plural(attributesPerSpan, "attribute") + " per span; at least " + mebibytes(o.Bytes) +
			" each of protobuf and JSON"
		if err := o.measureDecoders(ctx, result, format, in); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// requests is a list of encoded requests.
type requests struct {
	data         [][]byte
	bytes, spans int
}

// requests generates distinct traces and encodes them until they fill o.Bytes.
func (o Options) requests(format string) (*requests, error) {
	var table trace.Table
	r := rand.New(rand.NewPCG(o.Seed, 2))
	kinds := shapes(r, &table, 50, spansPerTrace)
	encode := tracegen.Protobuf
	if format == "JSON" {
		encode = tracegen.JSON
	}
	in := &requests{}
	for begin := trace.Nanos(1_700_000_000_000_000_000); in.bytes < o.Bytes; begin += 1_000_000_000 {
		traces := make([]*trace.Trace, tracesPerRequest)
		for i := range traces {
			traces[i] = kinds[r.IntN(len(kinds))].newTrace(r, begin)
			addAttributes(r, &table, traces[i], attributesPerSpan)
		}
		data, err := encode(traces, &table)
		if err != nil {
			return nil, err
		}
		in.data = append(in.data, data)
		in.bytes += len(data)
		in.spans += tracesPerRequest * spansPerTrace
	}
	return in, nil
}

// measureDecoders measures the decoders of a format.
func (o Options) measureDecoders(ctx context.Context, result *Result, format string, in *requests) error {
	none, err := ingest.NewKeys()
	if err != nil {
		return err
	}
	some, err := ingest.NewKeys(wantedKeys...)
	if err != nil {
		return err
	}
	var ours [2]float64
	for i, keys := range []*ingest.Keys{none, some} {
		name := format + ", no attributes wanted"
		if i == 1 {
			name = format + ", " + units.Plural(len(wantedKeys), "key") + " wanted"
		}
		if ours[i], err = o.measureDecoder(ctx, result, name, in, sibylDecoder(format, keys)); err != nil {
			return err
		}
	}
	theirs, err := o.measureDecoder(ctx, result, format+", pdata", in, pdataDecoder(format))
	if err != nil {
		return err
	}
	result.add(format+", ours ÷ pdata",
		Value{"ratio", ours[0] / theirs, units.Ratio(ours[0]/theirs) + "× without attributes"},
		Value{"ratio_with_keys", ours[1] / theirs, units.Ratio(ours[1]/theirs) + "× with keys"})
	return nil
}

// sibylDecoder returns Sibyl's decoder.
func sibylDecoder(format string, keys *ingest.Keys) func([]byte) error {
	var batch ingest.Batch
	d := otlp.NewDecoder(&trace.Table{}, keys)
	decode := d.Protobuf
	if format == "JSON" {
		decode = d.JSON
	}
	return func(data []byte) error {
		batch.Reset()
		return decode(data, &batch)
	}
}

// pdataDecoder returns the Collector's decoder.
func pdataDecoder(format string) func([]byte) error {
	if format == "JSON" {
		return func(data []byte) error {
			_, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
			return err
		}
	}
	return func(data []byte) error {
		_, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		return err
	}
}

// measureDecoder measures a decoder and returns its rate in spans per second.
func (o Options) measureDecoder(
	ctx context.Context, result *Result, name string, in *requests, decode func([]byte) error,
) (float64, error) {
	c, err := o.measure(ctx, func() error {
		for _, data := range in.data {
			if err := decode(data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	rate := c.rate(in.spans, "spans_per_second", "spans")
	throughput := float64(in.bytes) / c.time.Seconds()
	result.add(name, rate, Value{"bytes_per_second", throughput, units.Ratio(throughput/1e6) + " MB/s"},
		c.allocated(in.spans, "allocations_per_span", "span"))
	return rate.Number, nil
}
