package detect_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestWatchRemembers compares a Detector, which caches its verdicts on groups without requests, with one that was just
// restarted and has an empty cache. In each epoch some types have requests. Now and then one becomes slow or fails,
// groups are deleted, thresholds change, and problems are accepted.
func TestWatchRemembers(t *testing.T) {
	const types, perType = 50, 3
	r := rand.New(rand.NewPCG(1, 2))
	grouping := group.Options{}
	d := detect.New(newGrouper(grouping))
	options := detect.DefaultWatchOptions()
	options.MinSamples, options.Renew, options.Silence = 20, 12, 30
	options.Chronic = detect.Thresholds{CoV: 0.12}
	var all []*observation.Observation
	for i := range types * perType {
		all = append(all, requests.Edged(r, i/perType, i))
	}
	slow := make([]float64, types)
	now := trace.Nanos(1e18)
	most, opened := 0, 0
	for epoch := range 90 {
		restored := restarted(t, d, grouping)
		if epoch%50 == 20 {
			options.Chronic = detect.Thresholds{CoV: 0.10 + 0.02*r.Float64()}
		}
		for i := range types {
			if r.IntN(60) == 0 {
				slow[i] = 2 * r.Float64()
			} else if r.IntN(20) == 0 {
				slow[i] = 0
			}
			if epoch > 6 && r.IntN(4) > 0 || i < 20 && epoch%80 > 40 {
				continue // no requests
			}
			for range 4 + 12*r.IntN(2) {
				o := *all[i*perType+min(r.IntN(perType), r.IntN(perType))]
				o.Root = trace.SpanID(r.Uint64())
				o.Failed = r.IntN(50) == 0 || slow[i] > 1.5
				o.Edges = slices.Clone(o.Edges)
				o.Duration = 0
				factor := 1 + slow[i] + float64(i%7)/10*r.ExpFloat64()
				for k := range o.Edges {
					o.Edges[k].Nanos = int64(factor * float64(50_000+r.Int64N(50_000)))
					o.Duration += time.Duration(o.Edges[k].Nanos)
				}
				again := o
				again.Edges = slices.Clone(o.Edges)
				d.Groups.Observe(&o)
				restored.Groups.Observe(&again)
			}
		}
		now = now.Add(10 * time.Second)
		both := func(f func(d *detect.Detector)) {
			f(d)
			f(restored)
		}
		got, want := d.Watch(now, options), restored.Watch(now, options)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("epoch %d: problems of a restarted Detector and of another (-restarted +other):\n%s", epoch, diff)
		}
		both(func(d *detect.Detector) { d.Learn(now.Add(-time.Minute), options) })
		if epoch%30 == 29 {
			both(func(d *detect.Detector) { d.Groups.Forget(now.Add(-3 * time.Minute)) })
		}
		if len(got) > 0 && epoch%20 == 10 {
			id := got[r.IntN(len(got))].Group
			both(func(d *detect.Detector) { d.Accept(id, now) })
		}
		if !bytes.Equal(d.AppendBinary(nil), restored.AppendBinary(nil)) {
			t.Fatalf("epoch %d: the state depends on restarts", epoch)
		}
		most = max(most, len(got))
		for i := range got {
			if got[i].Onset == detect.Changed {
				opened++
			}
		}
	}
	t.Logf("%d problems, %d changed ones", most, opened)
	if most < 50 || opened < 100 {
		t.Errorf("at most %d problems, %d changed ones", most, opened)
	}
}
