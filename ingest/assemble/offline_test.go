package assemble_test

import (
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// item is a span with its attributes and joins.
type item struct {
	id    trace.ID
	span  trace.Span
	attrs []trace.Attr
	joins []trace.Join
}

var items = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
	it := item{}
	it.id[rapid.SampledFrom([]int{0, 8, 15}).Draw(t, "byte")] = rapid.Uint8Range(1, 4).Draw(t, "trace")
	it.span = trace.Span{
		ID:     trace.SpanID(rapid.Uint64Range(1, 5).Draw(t, "id")), // few values, so that some are equal
		Parent: trace.SpanID(rapid.Uint64().Draw(t, "parent")),
		Start:  trace.Nanos(rapid.Int64Range(0, 3).Draw(t, "start")),
		End:    trace.Nanos(rapid.Int64Range(0, int64(trace.MaxNanos)).Draw(t, "end")),
		Op:     trace.Op(rapid.Uint64Range(0, 1).Draw(t, "op")),
		Host:   trace.Symbol(rapid.Uint64Range(0, 1).Draw(t, "host")),
		Kind:   trace.Kind(rapid.Uint8Range(0, 5).Draw(t, "kind")),
		Flags:  trace.Flags(rapid.Uint8Range(0, 3).Draw(t, "flags")),
	}
	for range rapid.IntRange(0, 2).Draw(t, "attrs") {
		it.attrs = append(it.attrs, trace.Attr{Key: 1, Number: rapid.Float64().Draw(t, "number"), Numeric: true})
	}
	for range rapid.IntRange(0, 1).Draw(t, "joins") {
		it.joins = append(it.joins, trace.Join{Linked: trace.SpanID(rapid.Uint64().Draw(t, "linked"))})
	}
	return it
}), 0, 60)

func batch(items []item) *ingest.Batch {
	var b ingest.Batch
	for _, it := range items {
		at := int32(len(b.Spans))
		b.Traces, b.Spans = append(b.Traces, it.id), append(b.Spans, it.span)
		for _, a := range it.attrs {
			a.Span = at
			b.Attrs = append(b.Attrs, a)
		}
		for _, j := range it.joins {
			j.Span = at
			b.Joins = append(b.Joins, j)
		}
	}
	return &b
}

func assembleAll(t rapid.TB, batches []*ingest.Batch, options assemble.Options) []trace.Trace {
	o := assemble.NewOffline(options)
	defer o.Close()
	for _, b := range batches {
		if err := o.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	all := kept(t, o.All())
	checkFind(t, o, all)
	return all
}

func kept(t rapid.TB, all iter.Seq2[*trace.Trace, error]) (traces []trace.Trace) {
	for tr, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		traces = append(traces, trace.Trace{ID: tr.ID})
		traces[len(traces)-1].Append(tr)
	}
	return traces
}

// checkFind checks that Find returns any of the traces unchanged, for IDs in any order and with repetitions.
func checkFind(t rapid.TB, o *assemble.Offline, all []trace.Trace) {
	var want []trace.Trace
	ids := []trace.ID{{0xff}} // unknown
	for i := range all {
		if i%3 != 1 {
			ids = append([]trace.ID{all[i].ID, all[i].ID}, ids...)
			want = append(want, all[i])
		}
	}
	for range 2 {
		if diff := cmp.Diff(want, kept(t, o.Find(ids)), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("-wanted, +found:\n%s", diff)
		}
	}
}

// Traces are complete and in the order of IDs. They don't depend on the order of spans, their batches, or the memory.
func TestOrderAndMemoryAreIrrelevant(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		all := items.Draw(t, "items")
		want := assembleAll(t, []*ingest.Batch{batch(all)}, assemble.Options{})

		shuffled := rapid.Permutation(all).Draw(t, "shuffled")
		var batches []*ingest.Batch
		for len(shuffled) > 0 {
			n := rapid.IntRange(1, len(shuffled)).Draw(t, "batch")
			batches = append(batches, batch(shuffled[:n]))
			shuffled = shuffled[n:]
		}
		memory := rapid.SampledFrom([]int64{1, 5000, 1 << 20}).Draw(t, "memory")
		got := assembleAll(t, batches, assemble.Options{Memory: memory, TempDir: dir})
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("-one batch in memory, +shuffled within %d bytes:\n%s", memory, diff)
		}

		spans := 0
		for i := range got {
			spans += len(got[i].Spans)
			if i > 0 && got[i-1].ID.Compare(got[i].ID) >= 0 {
				t.Fatalf("trace %s after %s", got[i].ID, got[i-1].ID)
			}
		}
		if spans != len(all) {
			t.Fatalf("%d spans came out, %d went in", spans, len(all))
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// Too many runs for one merge are merged in steps.
func TestManyRuns(t *testing.T) {
	const traces, rounds = 5, 300
	o := assemble.NewOffline(assemble.Options{Memory: 1, TempDir: t.TempDir()})
	defer o.Close()
	for round := range rounds {
		var b ingest.Batch
		for i := range traces {
			b.Traces = append(b.Traces, trace.ID{0: byte(i + 1)})
			b.Spans = append(b.Spans, trace.Span{ID: trace.SpanID(round + 1)})
		}
		if err := o.Add(&b); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for tr, err := range o.All() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; len(tr.Spans) != rounds || tr.ID[0] != byte(n) {
			t.Errorf("trace %s has %d spans, want %d", tr.ID, len(tr.Spans), rounds)
		}
	}
	if n != traces || o.Spilled() == 0 {
		t.Errorf("%d traces, want %d; %d bytes spilled", n, traces, o.Spilled())
	}
}

// An unwritable directory gives an error with advice.
func TestUnwritableTempDir(t *testing.T) {
	o := assemble.NewOffline(assemble.Options{Memory: 1, TempDir: filepath.Join(t.TempDir(), "missing")})
	defer o.Close()
	err := o.Add(&ingest.Batch{Traces: []trace.ID{{1}}, Spans: []trace.Span{{ID: 1}}})
	if !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "allow more memory, or set TMPDIR to a directory with room") {
		t.Errorf("error %v", err)
	}
}

func TestEmpty(t *testing.T) {
	o := assemble.NewOffline(assemble.Options{})
	defer o.Close()
	if err := o.Next(&trace.Trace{}); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want io.EOF", err)
	}
}

func BenchmarkOffline(b *testing.B) {
	// 2^20 spans of 72 bytes, in traces of 32 spans that arrive in 8 pieces far apart.
	const spans, perTrace, perPiece = 1 << 20, 32, 4
	var batches []*ingest.Batch
	for piece := range perTrace / perPiece {
		var batch ingest.Batch
		for i := range spans / perTrace {
			var id trace.ID
			binary.BigEndian.PutUint64(id[:], trace.Mix(uint64(i), 1))
			for k := range perPiece {
				s := trace.SpanID(trace.Mix(uint64(i), uint64(piece*perPiece+k)))
				batch.Traces = append(batch.Traces, id)
				batch.Spans = append(batch.Spans, trace.Span{ID: s, Start: trace.Nanos(s >> 2)})
			}
		}
		batches = append(batches, &batch)
	}
	for name, memory := range map[string]int64{"memory": 1 << 30, "disk": 16 << 20} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			dir := b.TempDir()
			for b.Loop() {
				n := len(assembleAll(b, batches, assemble.Options{Memory: memory, TempDir: dir}))
				if n != spans/perTrace {
					b.Fatalf("%d traces", n)
				}
			}
			b.ReportMetric(float64(b.N)*spans/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
