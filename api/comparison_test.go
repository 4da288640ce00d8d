package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/trace"
)

// compareWorst returns a comparison for the group of the worst problem.
func (w *harness) compareWorst(t *testing.T, query string) contract.Comparison {
	t.Helper()
	return fetch[contract.Comparison](t, w, prefix+"/groups/"+w.group.String()+"/compare"+query)
}

// Every sampled request lies in the box of the window that it arrived in, and in no other box. Two boxes that split the
// durations of a window split its requests. All other requests are the rest.
func TestCompareBox(t *testing.T) {
	w := newTroubled(t)
	for range 3 {
		w.epoch(t)
	}
	all := w.compareWorst(t, "?longer_ns=0").A
	middle := int64(*all.MeanNs)
	var sampled, boxes int64
	for _, window := range fetch[contract.GroupDetail](t, w, w.pathParams().Replace("/api/v1/groups/{group}")).Windows {
		times := fmt.Sprintf("?from=%s&to=%s", window.From.Format(time.RFC3339), window.To.Format(time.RFC3339))
		whole := w.compareWorst(t, times+"&longer_ns=0")
		slow := w.compareWorst(t, fmt.Sprintf("%s&longer_ns=%d", times, middle))
		fast := w.compareWorst(t, fmt.Sprintf("%s&shorter_ns=%d", times, middle))
		if n := whole.A.Requests; n > window.Count || n+whole.B.Requests != all.Requests ||
			slow.A.Requests+fast.A.Requests != n || slow.A.Requests+slow.B.Requests != all.Requests {
			t.Errorf("window of %d requests, %d sampled in all: %d in the box, %d outside; %d slow, %d fast",
				window.Count, all.Requests, n, whole.B.Requests, slow.A.Requests, fast.A.Requests)
		}
		if n := whole.A.Requests; n > 0 {
			boxes++
			if whole.A.From.Before(window.From) || whole.A.To.After(window.To) {
				t.Errorf("requests from %v to %v lie in a box from %v to %v",
					whole.A.From, whole.A.To, window.From, window.To)
			}
		}
		sampled += whole.A.Requests
		if whole.Note == nil && (whole.A.Requests < 8 || whole.B.Requests < 8) {
			t.Errorf("no note for %d requests against %d", whole.A.Requests, whole.B.Requests)
		}
	}
	if sampled != all.Requests || boxes < 3 {
		t.Errorf("got %d sampled requests in %d windows, want %d in at least 3", sampled, boxes, all.Requests)
	}
}

// The labels of the two sides differ.
func TestCompareLabels(t *testing.T) {
	w := newTroubled(t)
	windows := fetch[contract.GroupDetail](t, w, w.pathParams().Replace("/api/v1/groups/{group}")).Windows
	first, last := windows[0], windows[len(windows)-1]
	stamp := func(at time.Time) string { return at.Format(time.RFC3339) }
	for query, want := range map[string][2]string{
		"?slowest=0.1": {"the slowest 10 % of the sampled requests", "the other sampled requests"},
		fmt.Sprintf("?from=%s&base_from=%s&base_to=%s", stamp(last.From), stamp(first.From), stamp(first.To)): {
			"the requests from " + stamp(last.From) + " to " + stamp(last.To),
			"the requests from " + stamp(first.From) + " to " + stamp(first.To),
		},
	} {
		if c := w.compareWorst(t, query); c.A.Label != want[0] || c.B.Label != want[1] {
			t.Errorf("%s: %q and %q", query, c.A.Label, c.B.Label)
		}
	}
}

// A comparison by time doesn't start earlier or end later than asked for, if there are windows in that time.
func TestCompareWithinTimes(t *testing.T) {
	w := newTroubled(t)
	windows := fetch[contract.GroupDetail](t, w, w.pathParams().Replace("/api/v1/groups/{group}")).Windows
	for _, window := range windows[1 : len(windows)-1] {
		onset := window.From.Add(window.To.Sub(window.From) / 4).Truncate(time.Second)
		stamp := onset.Format(time.RFC3339)
		c := w.compareWorst(t, "?from="+stamp+"&base_to="+stamp)
		if c.A.Requests == 0 || c.B.Requests == 0 || c.A.From.Before(onset) || c.B.To.After(onset) {
			t.Errorf("%d requests from %v on and %d until %v, not since and before %v",
				c.A.Requests, c.A.From, c.B.Requests, c.B.To, onset)
		}
	}
}

// A comparison labels its box, and suggests a remedy if the box contains no sampled request.
func TestCompareBoxBefore(t *testing.T) {
	w := newTroubled(t)
	since := w.compareWorst(t, "?longer_ns=0").A.From
	hour, minute := since.Add(-time.Hour).Format(time.RFC3339), since.Add(-time.Minute).Format(time.RFC3339)
	early := w.compareWorst(t, "?from="+hour+"&to="+minute+"&longer_ns=0&shorter_ns=5000000")
	if early.A.Requests != 0 || early.A.From != nil || early.A.MeanNs != nil || early.Note == nil ||
		!strings.Contains(*early.Note, "choose a later box, or compare times alone") {
		t.Errorf("%+v", early)
	}
	want := "the sampled requests that arrived from " + hour + " to " + minute + " and took 0 ns to 5 ms"
	if early.A.Label != want {
		t.Errorf("%q, want %q", early.A.Label, want)
	}
	if x := w.compareWorst(t, "?from="+hour+"&longer_ns=0"); x.A.Requests == 0 || x.Note == nil {
		t.Errorf("a box that begins before the sample: %+v", x)
	}
}

// A comparison finds the attribute of the slow requests, no matter how the populations are chosen.
func TestCompareAttributes(t *testing.T) {
	w := newTroubled(t)
	table := w.core.View().Table
	slow := time.Duration(*w.compareWorst(t, "?slowest=0.3").B.MeanNs * 1.2)
	requests := 0
	w.alter = func(x *trace.Trace) {
		requests++
		tenant, shard := "usual", fmt.Sprint("shard", requests%3)
		if x.Spans[0].Duration() > slow {
			tenant = "whale"
		}
		x.Attrs = append(x.Attrs,
			trace.Attr{Key: table.Symbol("tenant"), Text: table.Symbol(tenant)},
			trace.Attr{Key: table.Symbol("shard"), Text: table.Symbol(shard)})
	}
	from := w.now
	w.play(t, 60, func() bool {
		sampled := w.core.View().Problems.Sampled(w.group)
		altered := slices.DeleteFunc(sampled, func(o *observation.Observation) bool { return o.Start < from })
		return len(altered) >= 100
	})
	for _, query := range []string{
		"?slowest=0.2", fmt.Sprintf("?longer_ns=%d", slow.Nanoseconds()),
		fmt.Sprintf("?longer_ns=%d&from=%s", slow.Nanoseconds(), render.At(from).Format(time.RFC3339)),
	} {
		c := w.compareWorst(t, query).Attributes
		if len(c.Items) == 0 || c.A == 0 || c.B == 0 {
			t.Fatalf("%s: %+v", query, c)
		}
		x := &c.Items[0]
		if x.Key != "tenant" || x.PValue > 0.01 || len(x.Where) != 1 || x.Service == "" ||
			!strings.HasPrefix(x.Text, "tenant = "+x.Value+" at "+x.Service) {
			t.Errorf("%s: %+v", query, *x)
		}
		if whale := x.Value == "whale"; whale != (x.AShare > x.BShare) || whale != (*x.DifferenceNs.Value > 0) {
			t.Errorf("%s: %s has shares %v of the slow and %v of the others, and a difference of %v ns",
				query, x.Value, x.AShare, x.BShare, *x.DifferenceNs.Value)
		}
		for i := range c.Items[1:] {
			if c.Items[i+1].PValue < c.Items[i].PValue || c.Items[i+1].Key == "shard" && c.Items[i+1].PValue < 0.001 {
				t.Errorf("%s: item %d: %+v", query, i+1, c.Items[i+1])
			}
		}
	}
	middle := from + (w.now-from)/2
	later := w.compareWorst(t, fmt.Sprintf("?from=%s&base_from=%s&base_to=%[1]s",
		render.At(middle).Format(time.RFC3339), render.At(from).Format(time.RFC3339))).Attributes
	if later.A == 0 || later.B == 0 {
		t.Errorf("one range of time against another: %+v", later)
	}
	for _, x := range later.Items {
		if x.PValue < 0.001 {
			t.Errorf("found a difference over time, want none: %+v", x)
		}
	}
	if c := w.compareWorst(t, "?longer_ns=3600000000000").Attributes; c.A != 0 || len(c.Items) != 0 {
		t.Errorf("an empty side: got %+v", c)
	}
}
