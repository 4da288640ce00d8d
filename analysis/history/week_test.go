package history

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// checkRestored encodes and restores h, and compares both.
func checkRestored(t *testing.T, h *Sites) {
	t.Helper()
	restored, err := DecodeSites(h.AppendBinary(nil), h.table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendBinary(nil), h.AppendBinary(nil)) {
		t.Error("the restored history differs")
	}
}

// TestWeek learns a slow hour of every day, from the third day on, and forgets it after a week. A level that was
// reached on a single day is not usual.
func TestWeek(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const normal, slow = 100 * time.Millisecond, 200 * time.Millisecond
	nightly := func(at time.Duration) time.Duration {
		if at < 10*testDay && at%testDay >= 2*time.Hour && at%testDay < 3*time.Hour || at/time.Hour == 5*24+12 {
			return slow
		}
		return normal
	}
	begin := time.Duration(0)
	usual := func(day, hour int) time.Duration {
		at := time.Duration(day*24+hour)*time.Hour + 30*time.Minute
		playDays(table, h, begin, at-30*time.Minute, nightly)
		begin = at - 30*time.Minute
		return time.Duration(h.series[1].Week.Usual(Slice(at / SliceLength))).Round(time.Millisecond)
	}
	for _, x := range []struct {
		day, hour int
		want      time.Duration
	}{
		{1, 2, 0}, {2, 2, slow}, {2, 12, normal}, {6, 2, slow}, {6, 12, normal}, {15, 2, slow}, {16, 2, normal},
	} {
		if got := usual(x.day, x.hour); got < x.want || float64(got) > 1.1*float64(x.want) {
			t.Errorf("day %d, %d:30: %v, want %v", x.day, x.hour, got, x.want)
		}
	}
	checkRestored(t, h)
}

// If a service becomes twice as slow, its growth is known three hours later.
func TestGrowthOfHours(t *testing.T) {
	const begin = 8*testDay + 3*time.Hour
	h := NewSites(&trace.Table{})
	for at := time.Duration(0); at < begin+4*time.Hour; at += 10 * time.Minute {
		nanos := int64(100 * time.Millisecond)
		if at >= begin {
			nanos *= 2
		}
		h.Merge(callsAt(h.table, at, at+10*time.Second, nanos))
		h.Age(trace.Nanos(at + 10*time.Minute))
	}
	if growth := h.series[1].Week.lastHours.Growth(); math.Abs(growth-2) > 0.01 {
		t.Errorf("grown to %.3f times, want 2", growth)
	}
}

// The times of the first half hour are known as soon as a part of it is over, and stay known. A service that is slow
// when it starts is slow only in the first part.
func TestEarly(t *testing.T) {
	h := NewSites(&trace.Table{})
	slow := func(at time.Duration) time.Duration {
		if at < 5*time.Minute {
			return 300 * time.Millisecond
		}
		return 100 * time.Millisecond
	}
	const begin = 20 * time.Minute // of an hour
	played := time.Duration(0)
	for _, x := range []struct {
		after time.Duration
		want  [EarlyParts]float64 // milliseconds
	}{
		{5 * time.Minute, [EarlyParts]float64{}},
		{15 * time.Minute, [EarlyParts]float64{200, 200, 200}},
		{35 * time.Minute, [EarlyParts]float64{200, 100, 100}},
		{95 * time.Minute, [EarlyParts]float64{200, 100, 100}},
		{5 * time.Hour, [EarlyParts]float64{200, 100, 100}},
	} {
		for ; played < x.after; played += time.Minute {
			at := begin + played
			h.Merge(callsAt(h.table, at, at+time.Minute, int64(slow(played))))
			h.Age(trace.Nanos(at + time.Minute))
		}
		checkRestored(t, h)
		now := SliceOf(trace.Nanos(begin + played))
		early, known := h.series[1].Early(h.series[1].LocalTimes().Unpack(nil), now,
			h.Requests.CoveredSince(trace.Nanos(begin+played)), nil)
		for i, m := range early {
			if math.Abs(m.Nanos/1e6-x.want[i]) > 1 || known != (x.want[i] > 0) {
				t.Errorf("after %v: %.1f ms in part %d, want %v", x.after, m.Nanos/1e6, i, x.want[i])
			}
		}
	}
}

// TestLevel keeps times to a thousandth, or rounds them up by a tenth.
func TestLevel(t *testing.T) {
	for nanos := 1.0; nanos < float64(trace.MaxDuration); nanos *= 1.7 {
		if got := levelOf(nanos).Nanos(); math.Abs(got/nanos-1) > 1e-3 {
			t.Errorf("%v: got %v", nanos, got)
		}
	}
	for nanos := float64(coarseFrom); nanos < float64(time.Hour); nanos *= 1.7 {
		if got := coarseLevelOf(nanos).nanos(); got < nanos*(1-1e-9) || got > 1.1*nanos {
			t.Errorf("%v: got %v, coarsely", nanos, got)
		}
	}
	if Level(0).Nanos() != 0 || levelOf(0) == 0 || coarseLevel(0).nanos() != 0 || coarseLevelOf(0) == 0 {
		t.Error("a time of 0 is not told from an unknown one")
	}
}

// A job that doubles times at the same hour of two days is a habit of that hour, and of no other. The habit is the
// whole job at its start, and three quarters of it half an hour later, when a quarter of the two hours before is in the
// job. Chance is not a habit.
func TestHabit(t *testing.T) {
	w := &Week{}
	for h := range Hour(hoursPerWeek) {
		w.highs[h] = coarseLevelOf(1e6)
		if h%HoursPerDay == 2 && h < 2*HoursPerDay {
			w.highs[h] = coarseLevelOf(2e6)
		}
	}
	at := func(day, hour Slice) Slice { return (day*HoursPerDay + hour) * SlicesPerHour }
	if got := w.Habit(at(6, 2)); math.Abs(got-1) > 1e-9 {
		t.Errorf("at the beginning of the job: %v octaves, want 1", got)
	}
	if got := w.Habit(at(6, 2) + SlicesPerHour/2); math.Abs(got-0.75) > 1e-9 {
		t.Errorf("half an hour later: %v octaves, want 0.75", got)
	}
	if got := w.Habit(at(6, 12)); got != 0 {
		t.Errorf("at another hour: %v octaves, want 0", got)
	}
	if got := (*Week)(nil).Habit(at(6, 2)); got != 0 {
		t.Errorf("without a week: %v octaves, want 0", got)
	}
}

// callsAt returns a tally of a shop whose requests, one per second between from and to, spend nanos in the checkout.
func callsAt(table *trace.Table, from, to time.Duration, nanos int64) *Tally {
	tally, x := NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for at := from; at < to; at += time.Second {
		tally.Observe(x.Extract(tracetest.Checkout(table, at, nanos)))
	}
	return tally
}

// playDays plays days with a request every ten seconds. slow returns the own time at an instant.
func playDays(table *trace.Table, h *Sites, from, to time.Duration, slow func(time.Duration) time.Duration) {
	for at := from; at < to; at += 10 * time.Minute {
		for part := at; part < at+10*time.Minute; part += SliceLength {
			h.Merge(callsAt(table, part, part+SliceLength, int64(slow(part))))
		}
		h.Age(trace.Nanos(at + 10*time.Minute))
	}
}

const testDay = 24 * time.Hour
