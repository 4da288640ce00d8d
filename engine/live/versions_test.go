package live

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// A version starts with its own first span, no matter which spans of other versions arrive with it. Spans with wrong
// clocks don't count.
func TestVersionsBegin(t *testing.T) {
	now := trace.Nanos(0).Add(1000 * time.Hour)
	batch := func(starts ...trace.Nanos) *ingest.Batch {
		b := &ingest.Batch{}
		for i, start := range starts {
			b.Versions = append(b.Versions, ingest.VersionStart{
				ServiceVersion: ingest.ServiceVersion{Service: 1, Version: trace.Symbol(i + 1)}, First: start,
			})
		}
		return b
	}
	var buffer versionBuffer
	minute := func(n int) trace.Nanos { return now.Add(time.Duration(n) * time.Minute) }
	buffer.observe(now, batch(minute(-20), minute(-2), minute(5), 0, now.Add(-maxDelay-1)))
	buffer.observe(minute(1), batch(minute(-30), minute(-1)))
	want := []trace.Nanos{minute(-30), minute(-2), now, now, now}
	var got []trace.Nanos
	for _, v := range buffer.take() {
		got = append(got, v.First)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("starts of versions (-want +got):\n%s", diff)
	}
}
