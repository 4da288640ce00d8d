package api

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/trace"
)

// compared asks for a comparison of the group of the worst problem.
func (w *world) compared(t *testing.T, query string) contract.Comparison {
	t.Helper()
	return decode[contract.Comparison](t, w.call(t, http.MethodGet, prefix+"/groups/"+w.past.group.String()+"/compare"+query, nil))
}

// Every request sampled is in the box of the window in which it came, and in no other; of a part of a window's durations it is in one of two
// boxes; the rest are all others.
func TestCompareBox(t *testing.T) {
	w := troubled(t)
	for range 3 {
		w.epoch(t)
	}
	all := w.compared(t, "?longer_ns=0").A
	middle := int64(*all.MeanNs)
	var sampled, boxes int64
	for _, window := range decode[contract.GroupDetail](t, w.call(t, http.MethodGet, w.places().Replace("/api/v1/groups/{group}"), nil)).Windows {
		times := fmt.Sprintf("?from=%s&to=%s", window.From.Format(time.RFC3339), window.To.Format(time.RFC3339))
		whole := w.compared(t, times+"&longer_ns=0")
		slow, fast := w.compared(t, fmt.Sprintf("%s&longer_ns=%d", times, middle)), w.compared(t, fmt.Sprintf("%s&shorter_ns=%d", times, middle))
		if n := whole.A.Requests; n > window.Count || n+whole.B.Requests != all.Requests || slow.A.Requests+fast.A.Requests != n || slow.A.Requests+slow.B.Requests != all.Requests {
			t.Errorf("of %d, %d sampled: %d and the rest %d, of which %d are slow and %d fast", window.Count, all.Requests, n, whole.B.Requests, slow.A.Requests, fast.A.Requests)
		}
		if n := whole.A.Requests; n > 0 {
			boxes++
			if whole.A.From.Before(window.From) || whole.A.To.After(window.To) {
				t.Errorf("%v to %v in a box from %v to %v", whole.A.From, whole.A.To, window.From, window.To)
			}
		}
		sampled += whole.A.Requests
		if whole.Note == nil && (whole.A.Requests < fewCompared || whole.B.Requests < fewCompared) {
			t.Errorf("no note for %d against %d requests", whole.A.Requests, whole.B.Requests)
		}
	}
	if sampled != all.Requests || boxes < 3 {
		t.Errorf("%d requests sampled are in %d windows, want %d in at least 3", sampled, boxes, all.Requests)
	}
}

// A box says what it is of, and what to do where nothing sampled lies in it.
func TestCompareBoxBefore(t *testing.T) {
	w := troubled(t)
	since := w.compared(t, "?longer_ns=0").A.From
	early := w.compared(t, "?from="+since.Add(-time.Hour).Format(time.RFC3339)+"&to="+since.Add(-time.Minute).Format(time.RFC3339)+"&longer_ns=0&shorter_ns=5000000")
	if early.A.Requests != 0 || early.A.From != nil || early.A.MeanNs != nil || early.Note == nil || !strings.Contains(*early.Note, "choose a later box, or compare times alone") {
		t.Errorf("%+v", early)
	}
	if want := "the requests sampled that came from " + since.Add(-time.Hour).Format(time.RFC3339) + " to " + since.Add(-time.Minute).Format(time.RFC3339) + " and took 0 ns to 5 ms"; early.A.Label != want {
		t.Errorf("%q, want %q", early.A.Label, want)
	}
	if straddling := w.compared(t, "?from="+since.Add(-time.Hour).Format(time.RFC3339)+"&longer_ns=0"); straddling.A.Requests == 0 || straddling.Note == nil {
		t.Errorf("a box that begins before what is sampled: %+v", straddling)
	}
}

// Times of a box are those of the ticks that lie in it for the most part, or it in them.
func TestBoxTimes(t *testing.T) {
	const s = trace.Nanos(time.Second)
	tick := [2]int64{int64(100 * s), int64(110 * s)}
	for _, x := range []struct {
		from, to trace.Nanos
		want     bool
	}{
		{0, 0, true},
		{100 * s, 110 * s, true},
		{104 * s, 200 * s, true},
		{106 * s, 200 * s, false},
		{0, 106 * s, true},
		{0, 105 * s, false},
		{101 * s, 103 * s, true},
		{107 * s, 109 * s, true},
		{107 * s, 120 * s, false},
		{90 * s, 104 * s, false},
		{105 * s, 0, true},
		{106 * s, 0, false},
		{108 * s, 102 * s, false},
	} {
		b := box{x.from, x.to, 5, 7}
		if got := b.has(5, tick); got != x.want {
			t.Errorf("[%d, %d) s has a request of [100, 110) s: %v", x.from/s, x.to/s, got)
		}
		if b.has(4, tick) || b.has(7, tick) {
			t.Errorf("[%d, %d) s has requests of other durations", x.from/s, x.to/s)
		}
	}
}

func TestBoxNotes(t *testing.T) {
	const minute = trace.Nanos(time.Minute)
	since := 1000 * minute
	all, late, wide := box{0, 0, 5, math.MaxInt64}, box{since, since + minute, 0, 7}, box{since - minute, 0, 0, 7}
	for _, x := range []struct {
		box             box
		in, out, silent int
		want            string
	}{
		{all, 8, 8, 0, ""},
		{all, 7, 300, 0, "only 7 of 307 requests sampled lie in the box: choose a larger one"},
		{all, 0, 0, 0, "no request is sampled"},
		{late, 0, 0, 9, "choose durations alone"},
		{late, 0, 9, 0, "none of 9 requests sampled lies in the box: choose a larger one"},
		{late, 9, 1, 0, "only 1 of 10 requests sampled lies outside of the box: choose a smaller one"},
		{box{since - minute, since, 0, 7}, 0, 9, 0, "no request sampled lies in the box: requests are sampled since 1970-01-01T16:40:00Z only, when they began to be judged; choose a later box, or compare times alone"},
		{wide, 3, 90, 0, "choose a later or larger box"},
		{wide, 30, 90, 0, "what of the box is before that is not compared"},
	} {
		if got := x.box.note(since, x.in, x.out, x.silent); x.want == "" && got != "" || !strings.Contains(got, x.want) {
			t.Errorf("%+v of %d, %d, %d: %q, want %q", x.box, x.in, x.out, x.silent, got, x.want)
		}
	}
}

// Requests that do not say when they came are in no box of times, nor in the rest of it; of durations alone they are compared.
func TestBoxOfSilent(t *testing.T) {
	g := group.NewGrouper(&group.RequestTypes{}, &trace.Table{}, group.Options{})
	g.Observe(&observation.Observation{Start: 1e18, Duration: time.Millisecond})
	g.Close(0)
	group := g.Groups()[0]
	in, out, note := (&box{1e18, 2e18, 0, math.MaxInt64}).split(group)
	if in.n != 0 || out.n != 0 || !strings.Contains(note, "do not say when") {
		t.Errorf("%+v, %+v, %q", in, out, note)
	}
	if in, _, _ := (&box{0, 0, 0, math.MaxInt64}).split(group); in.n != 1 || in.from != group.Current.First || in.to != group.Current.Last {
		t.Errorf("%+v", in)
	}
}

// TestCompareAttributes marks the slow requests of a world, and finds the mark by each way to choose populations.
func TestCompareAttributes(t *testing.T) {
	w := troubled(t)
	table := w.core.Table()
	slow := time.Duration(*w.compared(t, "?slowest=0.3").B.MeanNs * 1.2)
	requests := 0
	w.mark = func(x *trace.Trace) {
		requests++
		tenant, shard := "usual", fmt.Sprint("shard", requests%3)
		if x.Spans[0].Duration() > slow {
			tenant = "whale"
		}
		x.Attrs = append(x.Attrs,
			trace.Attr{Key: table.Symbol("tenant"), Text: table.Symbol(tenant)}, trace.Attr{Key: table.Symbol("shard"), Text: table.Symbol(shard)})
	}
	from := w.now
	w.play(t, 12, func() bool { return len(w.core.Sampled(w.past.group)) >= 64 })
	for _, query := range []string{
		"?slowest=0.2", fmt.Sprintf("?longer_ns=%d", slow.Nanoseconds()),
		fmt.Sprintf("?longer_ns=%d&from=%s", slow.Nanoseconds(), instantText(from)),
	} {
		c := w.compared(t, query).Attributes
		if len(c.Items) == 0 || c.A == 0 || c.B == 0 {
			t.Fatalf("%s: %+v", query, c)
		}
		x := &c.Items[0]
		if x.Key != "tenant" || x.PValue > 0.01 || len(x.Where) != 1 || x.Service == "" || !strings.HasPrefix(x.Text, "tenant = "+x.Value+" at "+x.Service) {
			t.Errorf("%s: %+v", query, *x)
		}
		if whale := x.Value == "whale"; whale != (x.AShare > x.BShare) || whale != (*x.DifferenceNs.Value > 0) {
			t.Errorf("%s: %s is in %v of the slow and %v of the others, and makes a difference of %v ns", query, x.Value, x.AShare, x.BShare, *x.DifferenceNs.Value)
		}
		for i := range c.Items[1:] {
			if c.Items[i+1].PValue < c.Items[i].PValue || c.Items[i+1].Key == "shard" && c.Items[i+1].PValue < 0.001 {
				t.Errorf("%s: item %d: %+v", query, i+1, c.Items[i+1])
			}
		}
	}
	middle := from + (w.now-from)/2
	later := w.compared(t, fmt.Sprintf("?from=%s&base_from=%s&base_to=%[1]s", instantText(middle), instantText(from))).Attributes
	if later.A == 0 || later.B == 0 {
		t.Errorf("one stretch of time against another: %+v", later)
	}
	for _, x := range later.Items {
		if x.PValue < 0.001 {
			t.Errorf("nothing changed with time: %+v", x)
		}
	}
	if c := w.compared(t, fmt.Sprintf("?longer_ns=%d", int64(time.Hour))).Attributes; c.A != 0 || len(c.Items) != 0 {
		t.Errorf("nobody against all: %+v", c)
	}
}

// TestSides divides requests as the populations of a comparison do.
func TestSides(t *testing.T) {
	var all []*observation.Observation
	for _, s := range []int64{1, 2, 2, 5, 9} {
		all = append(all, &observation.Observation{Duration: time.Duration(s) * time.Second, Start: trace.Nanos(s)})
	}
	sides := func(of func(*observation.Observation) side) string {
		var b strings.Builder
		for _, o := range all {
			b.WriteByte("-ab"[of(o)])
		}
		return b.String()
	}
	wide, late := box{0, 0, int64(2 * time.Second), int64(9 * time.Second)}, box{2, 9, 0, math.MaxInt64}
	for name, x := range map[string]struct{ got, want string }{
		"slowest fifth":             {sides(slowestSide(all, 0.2)), "bbbba"},
		"slowest three, one equal":  {sides(slowestSide(all, 0.6)), "baaaa"},
		"durations":                 {sides(wide.side), "baaab"},
		"times of a box":            {sides(late.side), "baaab"},
		"times without end":         {sides(func(o *observation.Observation) side { return timesSide(o, 5, 0, 0, 2) }), "b--aa"},
		"times between other times": {sides(func(o *observation.Observation) side { return timesSide(o, 5, 9, 2, 5) }), "-bba-"},
	} {
		if x.got != x.want {
			t.Errorf("%s: %s, want %s", name, x.got, x.want)
		}
	}
	if got := slowestSide(nil, 0.5)(all[0]); got != second {
		t.Errorf("without requests: %v", got)
	}
}
