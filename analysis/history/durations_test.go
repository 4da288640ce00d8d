package history

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// The durations of the last ten minutes are known for a service and each of its instances, which add up to the service.
// Earlier ones are percentiles of the service. A restart changes nothing.
func TestDurations(t *testing.T) {
	h := NewSites(&trace.Table{})
	f := &tracetest.Fleet{Table: h.table, Rand: rand.New(rand.NewPCG(1, 1))}
	all := []tracetest.Instance{{Version: "1", Slower: 1}, {Version: "1", Slower: 20}}
	for at := time.Duration(0); at < 40*time.Minute; at += 5 * time.Minute {
		play(h, f, at, at+5*time.Minute, all)
	}
	again, err := DecodeSites(h.AppendBinary(nil), h.table)
	if err != nil || !bytes.Equal(again.AppendBinary(nil), h.AppendBinary(nil)) {
		t.Fatalf("the history changes with a restart: %v", err)
	}
	service, pod, d := h.table.Symbol("cart"), InstanceKeys[1], &again.Durations
	end := trace.Nanos(40 * time.Minute)
	whole := d.Latest(InstanceKey{Service: service}, 0, end)
	var median []float64
	var sum stats.Ranks
	for _, x := range again.Instances.Of(service, pod) {
		r := d.Latest(x.InstanceKey, 0, end)
		median = append(median, r.Quantile(0.5))
		sum.Merge(&r)
	}
	if whole.Count() == 0 || sum.Count() != whole.Count() || len(median) != 2 || max(median[0], median[1]) <
		3*min(median[0], median[1]) {
		t.Errorf("%d spans, of instances %d with medians %v", whole.Count(), sum.Count(), median)
	}
	since := d.Latest(InstanceKey{Service: service}, trace.Nanos(36*time.Minute), end)
	if n, most := since.Count(), whole.Count(); n == 0 || n >= most {
		t.Errorf("%d spans in the last four minutes, %d in ten", n, most)
	}
	for _, at := range []time.Duration{3 * time.Minute, 39 * time.Minute} {
		p, known := d.At(service, trace.Nanos(at))
		if !known || p.Median <= 0 || p.P99 < p.Median {
			t.Errorf("at %v: %v %t", at, p, known)
		}
	}
	again.Age(trace.Nanos(3 * time.Hour))
	if len(d.latest)+len(d.past) > 0 {
		t.Errorf("after three hours: %d and %d ticks are left", len(d.latest), len(d.past))
	}
}

// A trace that arrives after the percentiles of its tick are known does not replace them.
func TestLateDurations(t *testing.T) {
	h := NewSites(&trace.Table{})
	f := &tracetest.Fleet{Table: h.table, Rand: rand.New(rand.NewPCG(1, 1))}
	play(h, f, 0, 2*time.Minute, []tracetest.Instance{{Version: "1", Slower: 1}})
	h.Age(trace.Nanos(30 * time.Minute))
	late := NewTally()
	tr := f.Request(0, 0, tracetest.Instance{Version: "1", Slower: 100})
	late.Observe(critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr))
	h.Merge(late)
	if len(h.Durations.latest) > 0 || len(h.Durations.past) == 0 {
		t.Errorf("%d ticks are open again, %d are over", len(h.Durations.latest), len(h.Durations.past))
	}
}
