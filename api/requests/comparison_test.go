package requests

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// A tick belongs to a box if the middle of one of them lies in the other.
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
		if got := b.contains(5, tick); got != x.want {
			t.Errorf("[%d, %d) s contains a request of [100, 110) s: got %v", x.from/s, x.to/s, got)
		}
		if b.contains(4, tick) || b.contains(7, tick) {
			t.Errorf("[%d, %d) s contains requests of other durations", x.from/s, x.to/s)
		}
	}
}

func TestBoxNotes(t *testing.T) {
	const larger = ", since Sibyl keeps some requests of each ten minutes only: choose a larger one"
	const minute = trace.Nanos(time.Minute)
	since := 1000 * minute
	all, late, wide := box{0, 0, 5, math.MaxInt64}, box{since, since + minute, 0, 7}, box{since - minute, 0, 0, 7}
	for _, x := range []struct {
		box     box
		in, out int
		want    string
	}{
		{all, 8, 8, ""},
		{all, 7, 300, "only 7 of 307 sampled requests lie in the box" + larger},
		{all, 0, 0, "there are no sampled requests"},
		{late, 0, 9, "none of 9 sampled requests lies in the box" + larger},
		{late, 9, 1, "only 1 of 10 sampled requests lies outside of the box: choose a smaller one"},
		{
			box{since - minute, since, 0, 7}, 0, 9, "no sampled request lies in the box: sampling began only at " +
				"1970-01-01T16:40:00Z; choose a later box, or compare times alone",
		},
		{wide, 3, 90, "choose a later or larger box"},
		{wide, 30, 90, "earlier requests in the box are not compared"},
	} {
		if got := x.box.note(since, x.in, x.out); x.want == "" && got != "" || !strings.Contains(got, x.want) {
			t.Errorf("%+v of %d, %d: got %q, want %q", x.box, x.in, x.out, got, x.want)
		}
	}
}

// Requests are divided into the same sides as the populations of a comparison.
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
	between := func(from, to, baseFrom, baseTo trace.Nanos) func(*observation.Observation) side {
		return func(o *observation.Observation) side { return timesSide(o, from, to, baseFrom, baseTo) }
	}
	wide, late := box{0, 0, int64(2 * time.Second), int64(9 * time.Second)}, box{2, 9, 0, math.MaxInt64}
	for name, x := range map[string]struct{ got, want string }{
		"slowest fifth":             {sides(slowestSide(all, 0.2)), "bbbba"},
		"slowest three, one equal":  {sides(slowestSide(all, 0.6)), "baaaa"},
		"durations":                 {sides(wide.side), "baaab"},
		"times of a box":            {sides(late.side), "baaab"},
		"times without end":         {sides(between(5, 0, 0, 2)), "b--aa"},
		"times between other times": {sides(between(5, 9, 2, 5)), "-bba-"},
	} {
		if x.got != x.want {
			t.Errorf("%s: %s, want %s", name, x.got, x.want)
		}
	}
	if got := slowestSide(nil, 0.5)(all[0]); got != second {
		t.Errorf("without requests: %v", got)
	}
}
