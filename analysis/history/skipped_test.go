package history

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestSkipped skips the times of two incidents, one of which concerns a single service, and takes a part back.
func TestSkipped(t *testing.T) {
	k := Skipped{}
	put := func(id uint64, from, to Slice, services ...trace.Symbol) Slice {
		changed, ok := k.put(skip{Range{from, to}, id, services})
		if !ok {
			return -1
		}
		return changed
	}
	for i, got := range []Slice{
		put(1, 60, 90), put(2, 80, 100, 7), put(1, 60, 90), put(1, 60, 95), put(1, 50, 95), put(2, 80, 100, 7, 8),
	} {
		if want := []Slice{60, 80, -1, 90, 50, 80}[i]; got != want {
			t.Errorf("put %d changes times from %d on, want %d", i, got, want)
		}
	}
	if got := k.Of(7); !slices.Equal(got, Ranges{{50, 100}}) {
		t.Errorf("times of a service that both concern: %v", got)
	}
	if got := k.Of(9); !slices.Equal(got, Ranges{{50, 95}}) {
		t.Errorf("times of another service: %v", got)
	}
	at := func(s Slice) Interval { return Interval{s.Start(), (s + 1).Start()} }
	if !k.Overlaps(8, at(99)) || k.Overlaps(9, at(99)) || k.Overlaps(8, at(100)) || !k.Overlaps(9, at(50)) {
		t.Error("skipped slices are not skipped, or the reverse")
	}
	k.remove(Range{70, 98})
	if got := k.Any(); !slices.Equal(got, Ranges{{50, 70}, {98, 100}}) {
		t.Errorf("times left: %v", got)
	}
}

// Before returns the times before a slice and leaves the others alone.
func TestRangesBefore(t *testing.T) {
	all := Ranges{{1, 3}, {5, 9}, {12, 20}}
	kept := slices.Clone(all)
	for end, want := range map[Slice]Ranges{
		1: {}, 3: {{1, 3}}, 7: {{1, 3}, {5, 7}}, 9: {{1, 3}, {5, 9}}, 13: {{1, 3}, {5, 9}, {12, 13}}, 30: kept,
	} {
		if got := all.Before(end); !slices.Equal(got, want) {
			t.Errorf("before %d: %v, want %v", end, got, want)
		}
		if !slices.Equal(all, kept) {
			t.Fatalf("the ranges became %v", all)
		}
	}
}
