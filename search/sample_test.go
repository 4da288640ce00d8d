package search

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Earlier reports fade, and adding one leaves both as they were.
func TestSampleAdd(t *testing.T) {
	old := &Sample{Op: 1, At: 5, Requests: 8, Time: 100, Points: []PointTime{{2, 60, 20}, {4, 40, 40}}}
	sum := old.Add(&Sample{Op: 1, At: 9, Requests: 10, Time: 50, Points: []PointTime{{3, 10, 10}, {4, 30, 0}}})
	want := &Sample{Op: 1, At: 9, Requests: 14, Time: 100, Points: []PointTime{{2, 30, 10}, {3, 10, 10}, {4, 50, 20}}}
	if d := cmp.Diff(want, sum); d != "" {
		t.Error(d)
	}
	if old.Time != 100 || old.Points[0].Total != 60 || len(old.Points) != 2 {
		t.Errorf("changed: %+v", old)
	}
	if total, own := sum.of(4); total != 0.5 || own != 0.2 {
		t.Errorf("%v, %v of the time in 4; want 0.5, 0.2", total, own)
	}
}
