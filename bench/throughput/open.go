package throughput

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// openLengths lists the lengths of the open traces, in spans.
var openLengths = []int{1, 8, spansPerLoadedTrace}

// Open measures the memory of spans in open traces, compared with their encoded size.
func Open(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	result := &Result{Benchmark: "open", Input: "requests of " + units.Plural(spansPerRequest, "span") + " with " +
		units.Plural(attributesPerSpan, "attribute") + ", " + units.Plural(len(wantedKeys), "key") + " wanted, " +
		mebibytes(o.Bytes) + " for each length"}
	for _, length := range openLengths {
		if err := o.measureOpen(ctx, result, length); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// measureOpen opens traces of the given length and adds a row.
func (o Options) measureOpen(ctx context.Context, result *Result, length int) error {
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
	record, encoded := uint64(0), 0
	receive := func(traces []*trace.Trace) error {
		data, err := tracegen.Protobuf(traces, &table)
		if err != nil {
			return err
		}
		batch.Reset()
		if err := decoder.Protobuf(data, &batch); err != nil {
			return err
		}
		record++
		encoded += len(data)
		runs[0] = runs[0][:0]
		assemble.Runs(&batch, runs)
		for _, run := range runs[0] {
			online.Add(trace.Nanos(record), record, &batch, run)
		}
		return nil
	}
	receiveSome := func() error {
		for _, traces := range splitTraces(r, &table, kinds, length, 1_700_000_000_000_000_000) {
			if err := receive(traces); err != nil {
				return err
			}
		}
		return nil
	}
	if err := receiveSome(); err != nil { // allocates the memory that does not depend on open traces
		return err
	}
	opened, before := online.Stats(), heap()
	for encoded = 0; encoded < o.Bytes; {
		if err := errors.Join(ctx.Err(), receiveSome()); err != nil {
			return err
		}
	}
	bytes, s := heap()-before, online.Stats()
	for _, alive := range []any{online, decoder, kinds, &table, &batch} {
		runtime.KeepAlive(alive)
	}
	spans := float64(s.Spans - opened.Spans)
	inMemory, onWire := float64(bytes)/spans, float64(encoded)/spans
	result.add("traces of "+units.Plural(length, "span"),
		Value{"bytes_per_span", inMemory, fmt.Sprintf("%.0f bytes per span", inMemory)},
		Value{"wire_bytes_per_span", onWire, fmt.Sprintf("%.0f bytes encoded", onWire)},
		Value{"bytes_beyond_wire", inMemory - onWire, fmt.Sprintf("%+.0f beyond the encoded size", inMemory-onWire)})
	return nil
}
