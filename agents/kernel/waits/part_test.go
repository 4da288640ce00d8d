package waits

import (
	"slices"
	"testing"
)

// The parts of an event are in order and don't overlap. They include all wanted parts that are long enough.
func TestParts(t *testing.T) {
	e := Event{End: 1000, WaitNs: 300, RunqNs: 200, Syscall: 74, Class: Sync}
	wait := Part{Class: Sync, Syscall: 74, Start: 500, End: 800, RunqNs: 200}
	queue := Part{Class: RunQueue, Syscall: 74, Start: 800, End: 1000}
	limits := Thresholds{Sync: 300, RunQueue: 200}
	for _, c := range []struct {
		wanted Set
		limits Thresholds
		want   []Part
	}{
		{All, limits, []Part{wait, queue}},
		{Set(0).With(Sync), limits, []Part{wait}},
		{Set(0).With(RunQueue), limits, []Part{queue}},
		{Set(0).With(File), limits, nil},
		{All, Thresholds{Sync: 301, RunQueue: 200}, []Part{queue}},
		{All, Thresholds{Sync: 300}, []Part{wait}},
		{All, Thresholds{}, nil},
	} {
		if got := e.Parts(c.wanted, c.limits); !slices.Equal(got, c.want) {
			t.Errorf("%b, %v: %+v, want %+v", c.wanted, c.limits, got, c.want)
		}
	}
	if got := e.Parts(All, Thresholds{Sync: 2400, RunQueue: 200}.InSpans()); !slices.Equal(got, []Part{wait, queue}) {
		t.Errorf("%+v; want both parts", got)
	}
	if got := e.Parts(All, Thresholds{Sync: 2408, RunQueue: 1}.InSpans()); !slices.Equal(got, []Part{queue}) {
		t.Errorf("%+v; want no wait below an eighth of the threshold", got)
	}
	broken := Event{End: 100, WaitNs: 1 << 40, RunqNs: 1 << 40, Class: Sync}
	for _, p := range broken.Parts(All, limits) {
		if p.Start > p.End {
			t.Errorf("%+v", p)
		}
	}
}
