package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The evidence for a place survives a restart. It is kept until it is old, and longer while its problem is held.
func TestLocated(t *testing.T) {
	dir := t.TempDir()
	s, err := openIn(t, dir)
	must(t, err)
	a, b, held := search.OfProblem(analysis.Hash{Hi: 1}), search.OfProblem(analysis.Hash{Lo: 7}), search.OfIncident(7)
	for i, of := range []search.Subject{a, b, held} {
		must(t, s.Places.Put(&Located{Of: of, At: trace.Nanos(10 * (i + 1)), Evidence: []byte("first")}))
	}
	must(t, s.Places.Put(&Located{Of: held, At: 15, Evidence: []byte("again")}))
	must(t, s.Close())
	s, err = openIn(t, dir)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	x, err := s.Places.Get(held)
	must(t, err)
	if x == nil || x.At != 15 || string(x.Evidence) != "again" {
		t.Errorf("evidence %+v", x)
	}
	must(t, s.Places.Trim(20, map[search.Subject]bool{held: true}))
	for of, want := range map[search.Subject]bool{a: false, b: true, held: true, search.OfIncident(9): false} {
		if x, err := s.Places.Get(of); err != nil || (x != nil) != want {
			t.Errorf("%s: %+v, %v", of, x, err)
		}
	}
	must(t, s.Places.Trim(math.MaxInt64, nil))
	if x, err := s.Places.Get(held); err != nil || x != nil {
		t.Errorf("%+v, %v, want none", x, err)
	}
	for _, broken := range []string{"short", "12345678not compressed"} {
		must(t, s.db.Set(locatedKey(a), []byte(broken), pebble.NoSync))
		if x, err := s.Places.Get(a); !errors.Is(err, codec.ErrCorrupt) || x != nil && x.Evidence != nil {
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
	must(t, s.Ticks.Add(map[Tick]*group.Past{
		{one, at(0)}: pastOf(1), {one, at(5)}: pastOf(2, 3), {one, at(6)}: pastOf(4), {other, at(5)}: pastOf(9),
	}))
	must(t, s.Ticks.Add(map[Tick]*group.Past{{one, at(5)}: pastOf(5), {one, at(2)}: pastOf(6)}))
	counts := func(from, to int) (all []int64) {
		windows, err := s.Ticks.Windows(one, at(from), at(to))
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
	must(t, s.Ticks.DeleteBefore(at(6)))
	if got := counts(0, 12); !slices.Equal(got, []int64{6, 1}) {
		t.Errorf("after the deletion: %v", got)
	}
	must(t, s.db.Set(tickKey(Tick{one, at(6)}), []byte{200, 1}, pebble.NoSync))
	if _, err := s.Ticks.Windows(one, at(6), at(12)); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("corrupt minute: %v", err)
	}
}

// Ended hours are packed to minutes. Each request counts once, even if ticks arrive later or the hour is packed twice.
func TestPackTicks(t *testing.T) {
	s, err := openIn(t, t.TempDir())
	must(t, err)
	defer func() { must(t, s.Close()) }()
	one, other := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	begin := trace.Nanos(1_800_000_000 * int64(time.Second)) // a whole hour
	at := func(minute, tick int) trace.Nanos {
		return begin.Add(time.Duration(minute)*time.Minute + time.Duration(tick)*stats.Tick)
	}
	must(t, s.Ticks.Add(map[Tick]*group.Past{
		{one, at(0, 0)}: pastOf(1), {one, at(0, 5)}: pastOf(2, 3), {one, at(59, 1)}: pastOf(4),
		{other, at(59, 2)}: pastOf(9), {one, at(60, 1)}: pastOf(5),
	}))
	counts := func(id analysis.Hash, from, to trace.Nanos) (all []string) {
		windows, err := s.Ticks.Windows(id, from, to)
		must(t, err)
		for i := range windows {
			w := &windows[i]
			all = append(all, fmt.Sprint(w.From.Sub(begin), " ", w.To.Sub(w.From), " ", w.Total.N))
		}
		return all
	}
	expect := func(when string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	must(t, s.Ticks.Pack(at(59, 5)))
	expect("an hour that goes on", counts(one, at(0, 0), at(60, 0)), "0s 10s 1", "50s 10s 2", "59m10s 10s 1")
	must(t, s.Ticks.Pack(at(60, 0)))
	must(t, s.Ticks.Add(map[Tick]*group.Past{{one, at(0, 1)}: pastOf(6), {one, at(30, 0)}: pastOf(7)}))
	expect("with later ticks", counts(one, at(0, 0), at(90, 0)), "0s 1m0s 3", "10s 10s 1", "30m0s 10s 1",
		"59m0s 1m0s 1", "1h0m10s 10s 1")
	must(t, s.Ticks.Pack(at(60, 0)))
	must(t, s.Ticks.Pack(at(60, 0)))
	expect("packed", counts(one, at(0, 0), at(90, 0)), "0s 1m0s 4", "30m0s 1m0s 1", "59m0s 1m0s 1", "1h0m10s 10s 1")
	expect("the other group", counts(other, at(0, 0), at(90, 0)), "59m0s 1m0s 1")
	expect("a part", counts(one, at(30, 0), at(59, 0)), "30m0s 1m0s 1")
	must(t, s.Ticks.DeleteBefore(at(60, 0)))
	expect("deleted", counts(one, at(0, 0), at(90, 0)), "1h0m10s 10s 1")
	must(t, s.db.Set(minutesKey(at(0, 0), one), []byte{60, 1}, pebble.NoSync))
	if _, err := s.Ticks.Windows(one, at(0, 0), at(60, 0)); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("corrupt hour: %v", err)
	}
}
