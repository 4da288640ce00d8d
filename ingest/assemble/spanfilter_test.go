package assemble

import (
	"testing"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestSpanFilter checks that the filter contains every hash that was added and few others, and that it has a bounded
// size.
func TestSpanFilter(t *testing.T) {
	var f spanFilter
	const n = 300_000
	for i := range uint64(n) {
		f.add(trace.Mix(i, 1), mostInPart)
	}
	wrong := 0
	for i := range uint64(n) {
		if !f.has(trace.Mix(i, 1)) {
			t.Fatalf("hash %d of %d is missing", i, n)
		}
		if f.has(trace.Mix(i, 2)) {
			wrong++
		}
	}
	if wrong > n/25 {
		t.Errorf("%d of %d other hashes are found, want at most 4 %%", wrong, n)
	}
	for i := range uint64(12 * mostInPart) {
		f.add(trace.Mix(i, 3), mostInPart)
	}
	words := 0
	for _, p := range f.parts {
		words += len(p)
	}
	if most := mostParts * mostInPart / spansPerWord; len(f.parts) > mostParts || words > most {
		t.Errorf("%d words in %d parts, want at most %d in %d", words, len(f.parts), most, mostParts)
	}
	if f.has(trace.Mix(0, 1)) && f.has(trace.Mix(1, 1)) && f.has(trace.Mix(2, 1)) {
		t.Error("the first hashes are not forgotten")
	}
}

// TestDuplicatesAndLateSpans checks that spans of a closed trace are duplicates if the trace had them, and otherwise
// late.
func TestDuplicatesAndLateSpans(t *testing.T) {
	o := NewOnline(quick)
	var c Closed
	send := func(at trace.Nanos, ids ...trace.SpanID) {
		for o.Next(at, &c) {
			if c.Last != 5 {
				t.Errorf("the last span arrived at %d, want 5", c.Last)
			}
		}
		var b ingest.Batch
		for _, id := range ids {
			b.Traces, b.Spans = append(b.Traces, idOf(1)), append(b.Spans, trace.Span{ID: id})
		}
		o.Add(at, 1, &b, Run{To: int32(len(ids))})
	}
	send(5, 1, 2, 3)
	closed := trace.Nanos(5).Add(quick.Idle + quick.Settle)
	send(closed, 1, 2, 3)
	send(closed, 2)
	send(closed, 7, 8)
	if s := o.Stats(); s.Duplicates != 4 || s.Late != 2 || s.Traces != 0 {
		t.Errorf("%+v, want 4 duplicates and 2 late spans", s)
	}
}
