package engine_test

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// caching ingests a request of about 10 ms or, if the cache helps but was missed, of 40 ms.
func caching(core *engine.Core, at trace.Nanos, table *trace.Table, helps bool) {
	entry := table.Op(table.Symbol("shop"), table.Symbol("GET /"), trace.Server)
	hit := trace.Mix(uint64(at), 1)%2 == 0
	d := trace.Nanos(9+trace.Mix(uint64(at), 2)%3) * 1e6
	if helps && !hit {
		d *= 4
	}
	value := map[bool]string{true: "true", false: "false"}[hit]
	core.Ingest(&trace.Trace{
		ID:    trace.ID{15: 1, 0: byte(at / 1e7), 1: byte(at / 1e9), 2: byte(at / 1e11), 3: byte(at / 1e13)},
		Spans: []trace.Span{{ID: 1, Op: entry, Start: at, End: at + d}},
		Attrs: []trace.Attr{{Key: table.Symbol("cache.hit"), Text: table.Symbol(value)}},
	})
}

// A group is split by the variable that explains it in the learning period. The split is undone, without an alarm, when
// the variable no longer explains the group.
func TestCoreSplits(t *testing.T) {
	options := engine.DefaultOptions()
	options.Split = true
	table := &trace.Table{}
	core := engine.NewCore(table, options)
	now := start
	until := func(end time.Duration, helps bool) {
		for ; now < start.Add(end); now = now.Add(options.Epoch) {
			for i := range 50 {
				caching(core, now+trace.Nanos(i)*2e8, table, helps)
			}
			core.Epoch(now.Add(options.Epoch))
			for _, p := range core.View().Problems.Open() {
				t.Fatalf("after %v: problem %v, want none", now.Sub(start), p)
			}
		}
	}
	until(20*time.Minute, true)
	if all := engine.Splits(core); len(all) != 1 || all[0].Variable != "cache.hit" || len(all[0].Bins) != 2 {
		t.Fatalf("splits %v, want one by cache.hit", all)
	}
	until(50*time.Minute, false)
	if all := engine.Splits(core); len(all) != 0 {
		t.Errorf("split by %v, want none", all[0].Variable)
	}
}
