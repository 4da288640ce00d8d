package throughput

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"

	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// openLengths are the lengths of the traces that are held open, in spans.
var openLengths = []int{1, 8, spansOfIngested}

// Open measures how much memory spans take while their traces are open, beside what they take on the wire.
func Open(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	result := &Result{Benchmark: "open", Input: "requests of " + units.Plural(spansOfRequest, "span") + " with " +
		units.Plural(attributesOfSpan, "attribute") + ", " + units.Plural(len(wantedKeys), "key") + " wanted, " + mebibytes(o.Bytes) + " for each length"}
	for _, length := range openLengths {
		if err := o.open(ctx, result, length); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// open opens traces of so many spans, which come in up to eight requests each, and adds a row.
func (o Options) open(ctx context.Context, result *Result, length int) error {
	keys, err := ingest.NewKeys(wantedKeys...)
	if err != nil {
		return err
	}
	var table, names trace.Table
	r := rand.New(rand.NewPCG(o.Seed, 4))
	kinds := shapes(r, &table, 50, length)
	options := assemble.DefaultOnlineOptions()
	options.Memory = math.MaxInt64
	online, decoder := assemble.NewOnline(options), otlp.NewDecoder(&names, keys)
	var batch ingest.Batch
	runs := make([][]assemble.Run, 1)
	record, onWire := uint64(0), 0
	take := func(traces []*trace.Trace) error {
		data, err := tracegen.Protobuf(traces, &table)
		if err != nil {
			return err
		}
		batch.Reset()
		if err := decoder.Protobuf(data, &batch); err != nil {
			return err
		}
		record++
		onWire += len(data)
		runs[0] = runs[0][:0]
		assemble.Runs(&batch, runs)
		for _, run := range runs[0] {
			online.Add(trace.Nanos(record), record, &batch, run)
		}
		return nil
	}
	request := func() error { // one of every eight, or fewer, that the spans of a trace are spread over
		parts := make([][]*trace.Trace, min(requestsOfTrace, length))
		for range spansOfRequest * len(parts) / length {
			t := kinds[r.IntN(len(kinds))].newTrace(r, 1_700_000_000_000_000_000)
			withAttributes(r, &table, t, attributesOfSpan)
			for i, part := range spread(t, len(parts)) {
				parts[i] = append(parts[i], part)
			}
		}
		for _, traces := range parts {
			if err := take(traces); err != nil {
				return err
			}
		}
		return nil
	}
	if err := request(); err != nil { // what is there whatever is open
		return err
	}
	opened, before := online.Stats(), heap()
	for onWire = 0; onWire < o.Bytes; {
		if err := errors.Join(ctx.Err(), request()); err != nil {
			return err
		}
	}
	bytes, s := heap()-before, online.Stats()
	for _, alive := range []any{online, decoder, kinds, &table, &batch} {
		runtime.KeepAlive(alive)
	}
	spans := float64(s.Spans - opened.Spans)
	inMemory, wired := float64(bytes)/spans, float64(onWire)/spans
	result.add("traces of "+units.Plural(length, "span"), Value{"bytes_per_span", inMemory, fmt.Sprintf("%.0f bytes a span", inMemory)},
		Value{"wire_bytes_per_span", wired, fmt.Sprintf("%.0f on the wire", wired)},
		Value{"bytes_beyond_wire", inMemory - wired, fmt.Sprintf("%+.0f beyond", inMemory-wired)})
	return nil
}
