package store

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// The evidence of a place is kept after a restart, until it is old, and longer while its problem is held.
func TestLocated(t *testing.T) {
	dir := t.TempDir()
	s, err := openIn(t, dir)
	must(t, err)
	a, b, held := analysis.Hash{Hi: 1}, analysis.Hash{Hi: 1, Lo: 1}, analysis.Hash{Lo: 7}
	for i, of := range []analysis.Hash{a, b, held} {
		must(t, s.PutLocated(&Located{Of: of, At: trace.Nanos(10 * (i + 1)), Evidence: []byte("first")}))
	}
	must(t, s.PutLocated(&Located{Of: held, At: 15, Evidence: []byte("again")}))
	must(t, s.Close())
	s, err = openIn(t, dir)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	x, err := s.Located(held)
	must(t, err)
	if x == nil || x.At != 15 || string(x.Evidence) != "again" {
		t.Errorf("evidence %+v", x)
	}
	must(t, s.TrimLocated(20, map[analysis.Hash]bool{held: true}))
	for of, want := range map[analysis.Hash]bool{a: false, b: true, held: true, {Hi: 9}: false} {
		if x, err := s.Located(of); err != nil || (x != nil) != want {
			t.Errorf("%s: %+v, %v", of, x, err)
		}
	}
	must(t, s.TrimLocated(math.MaxInt64, nil))
	if x, err := s.Located(held); err != nil || x != nil {
		t.Errorf("%+v, %v, want none", x, err)
	}
	for _, broken := range []string{"short", "12345678not compressed"} {
		must(t, s.db.Set(locatedKey(a), []byte(broken), pebble.NoSync))
		if x, err := s.Located(a); !errors.Is(err, codec.ErrCorrupt) || x != nil && x.Evidence != nil {
			t.Errorf("%q: %+v, %v", broken, x, err)
		}
	}
}

// pastOf returns requests with durations in ms.
func pastOf(ms ...int64) *group.Past {
	p := &group.Past{}
	for _, d := range ms {
		p.Total.Add(d * int64(time.Millisecond))
		p.Latency.Add(d*int64(time.Millisecond), 1)
	}
	return p
}

// Ticks add up, and are read in order by group.
func TestTicks(t *testing.T) {
	s, err := openIn(t, t.TempDir())
	must(t, err)
	defer func() { must(t, s.Close()) }()
	one, other := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	begin := trace.Nanos(1_800_000_000 * int64(time.Second)) // a whole minute
	at := func(tick int) trace.Nanos { return begin.Add(time.Duration(tick) * stats.Tick) }
	must(t, s.AddTicks(map[Tick]*group.Past{{one, at(0)}: pastOf(1), {one, at(5)}: pastOf(2, 3), {one, at(6)}: pastOf(4), {other, at(5)}: pastOf(9)}))
	must(t, s.AddTicks(map[Tick]*group.Past{{one, at(5)}: pastOf(5), {one, at(2)}: pastOf(6)}))
	counts := func(from, to int) (all []int64) {
		windows, err := s.Ticks(one, at(from), at(to))
		must(t, err)
		for i := range windows {
			w := &windows[i]
			all = append(all, int64(w.From.Sub(begin)/stats.Tick), int64(w.Total.N))
			if w.To.Sub(w.From) != stats.Tick {
				t.Errorf("window %+v", w)
			}
		}
		return all
	}
	for _, c := range []struct {
		from, to int
		want     []int64 // tick and number of requests
	}{{0, 12, []int64{0, 1, 2, 1, 5, 3, 6, 1}}, {1, 6, []int64{2, 1, 5, 3}}, {7, 100, nil}} {
		if got := counts(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("ticks %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	must(t, s.DeleteTicksBefore(at(6)))
	if got := counts(0, 12); !slices.Equal(got, []int64{6, 1}) {
		t.Errorf("after the deletion: %v", got)
	}
	must(t, s.db.Set(tickKey(Tick{one, at(6)}), []byte{200, 1}, pebble.NoSync))
	if _, err := s.Ticks(one, at(6), at(12)); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("corrupt minute: %v", err)
	}
}
