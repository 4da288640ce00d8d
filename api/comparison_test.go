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
	return decode[contract.Comparison](t, w.call(t, http.MethodGet, w.places().Replace("/api/v1/groups/{group}/compare")+query, nil))
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
