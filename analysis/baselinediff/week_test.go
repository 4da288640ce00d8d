package baselinediff

import (
	"bytes"
	"math"
	"os"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// playDays plays days of a request every ten seconds. slow returns the own time at an instant.
func playDays(table *trace.Table, h *Sites, from, to time.Duration, slow func(time.Duration) time.Duration) {
	for at := from; at < to; at += 10 * time.Minute {
		for part := at; part < at+10*time.Minute; part += Slice {
			h.Merge(callsAt(table, part, part+Slice, int64(slow(part))))
		}
		h.Age(trace.Nanos(at + 10*time.Minute))
	}
}

const testDay = 24 * time.Hour

// checkRestored encodes h, restores it, and compares both.
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

// TestWeek learns a slow hour of every day, from the third day on, and forgets it after a week. What happened on one
// day only is not usual.
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
		return time.Duration(h.series[1].week.usual(slice(at / Slice))).Round(time.Millisecond)
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

// TestCrept compares the last hours with those of the week before: all three must be slower.
func TestCrept(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const normal = 100 * time.Millisecond
	playDays(table, h, 0, 7*testDay, func(time.Duration) time.Duration { return normal })
	end := 7 * testDay
	for i, x := range []struct {
		factor int // in tenths
		want   float64
	}{{10, 0}, {15, 0}, {13, 0}, {14, 0.3}, {12, 0.2}, {10, 0}, {14, 0}} {
		playDays(table, h, end, end+time.Hour, func(time.Duration) time.Duration { return normal / 10 * time.Duration(x.factor) })
		end += time.Hour
		playDays(table, h, end, end+10*time.Minute, func(time.Duration) time.Duration { return normal })
		c := h.Crept(trace.Nanos(end+10*time.Minute), WeekAgo)
		growth, whole := 0.0, 0.0
		for _, s := range c.Suspects {
			whole = max(whole, s.Whole.Excess/max(1, s.Whole.Usual))
			for _, o := range s.Operations {
				growth = max(growth, o.Excess/o.Usual)
			}
		}
		if math.Abs(growth-x.want) > 0.06 { // ten minutes of the next hour are normal
			t.Errorf("hour %d: grown by %.2f, want %.2f", i, growth, x.want)
		}
		if math.Abs(whole-x.want) > 0.06 {
			t.Errorf("hour %d: the service has grown by %.2f, want %.2f", i, whole, x.want)
		}
	}
}

// TestCreptMonth compares the last three days with those four weeks before: they show a leak of 1 % a day, of which a
// comparison with the week before hardly tells.
func TestCreptMonth(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const begins = 29
	growth := func(now time.Duration, than Earlier) float64 {
		c := h.Crept(trace.Nanos(now), than)
		if len(c.Suspects) == 0 {
			return 0
		}
		o := c.Suspects[0].Whole
		return o.Excess / max(1, o.Usual)
	}
	now := time.Duration(0)
	for _, x := range []struct {
		day         int
		week, month float64 // growth of the least of three hours, or days
	}{{31, 0.01, 0}, {40, 0.07, 0.08}, {50, 0.07, 0.19}, {57, 0.07, 0.28}, {62, 0.07, 0.32}} {
		for ; now < time.Duration(x.day)*testDay; now += 10 * time.Minute {
			leaked := math.Pow(1.01, max(0, math.Floor((now-begins*testDay).Hours()/24)))
			h.Merge(callsAt(table, now, now+10*time.Second, int64(leaked*float64(100*time.Millisecond))))
			h.Age(trace.Nanos(now + 10*time.Minute))
		}
		h.Age(trace.Nanos(now + 5*time.Minute))
		if got := growth(now+5*time.Minute, MonthAgo); math.Abs(got-x.month) > 0.015 {
			t.Errorf("day %d: grown by %.3f in four weeks, want %.2f", x.day, got, x.month)
		}
		if got := growth(now+5*time.Minute, WeekAgo); math.Abs(got-x.week) > 0.015 {
			t.Errorf("day %d: grown by %.3f in a week, want %.2f", x.day, got, x.week)
		}
	}
	checkRestored(t, h)
}

// TestDecodeWeek restores a history of the version without days, which Sibyl wrote on 26 November 2026. The week goes
// on, and three hours later growth is known again.
func TestDecodeWeek(t *testing.T) {
	old, err := os.ReadFile("testdata/sites.v4")
	if err != nil {
		t.Fatal(err)
	}
	table := &trace.Table{}
	h, err := DecodeSites(old, table)
	if err != nil {
		t.Fatal(err)
	}
	const begin = 8*testDay + 3*time.Hour
	played := NewSites(&trace.Table{})
	for at := time.Duration(0); at < begin+4*time.Hour; at += 10 * time.Minute {
		slow := int64(100 * time.Millisecond)
		if at >= begin {
			slow *= 2
			h.Merge(callsAt(table, at, at+10*time.Second, slow))
			h.Age(trace.Nanos(at + 10*time.Minute))
		}
		played.Merge(callsAt(played.table, at, at+10*time.Second, slow))
		played.Age(trace.Nanos(at + 10*time.Minute))
	}
	for _, sites := range []*Sites{h, played} {
		c := sites.Crept(trace.Nanos(begin+4*time.Hour), WeekAgo)
		if len(c.Suspects) == 0 {
			t.Fatal("no growth")
		}
		growth := c.Suspects[0].Whole.Excess / c.Suspects[0].Whole.Usual
		if math.Abs(growth-1) > 0.01 {
			t.Errorf("grown by %.3f, want 1", growth)
		}
	}
	if h.series[1].week.means != played.series[1].week.means {
		t.Error("the means of the week differ")
	}
}

// TestLevel keeps times to a thousandth, or rounds them up by a tenth.
func TestLevel(t *testing.T) {
	for nanos := 1.0; nanos < float64(trace.MaxDuration); nanos *= 1.7 {
		if got := levelOf(nanos).nanos(); math.Abs(got/nanos-1) > 1e-3 {
			t.Errorf("%v: got %v", nanos, got)
		}
	}
	for nanos := float64(coarseFrom); nanos < float64(time.Hour); nanos *= 1.7 {
		if got := coarseLevelOf(nanos).nanos(); got < nanos*(1-1e-9) || got > 1.1*nanos {
			t.Errorf("%v: got %v, coarsely", nanos, got)
		}
	}
	if level(0).nanos() != 0 || levelOf(0) == 0 || coarseLevel(0).nanos() != 0 || coarseLevelOf(0) == 0 {
		t.Error("a time of 0 is not told from an unknown one")
	}
}

// A job that doubles times at the same hour of two days is a habit of that hour, and of no other: at its beginning all
// of it, and half an hour later three quarters, since a quarter of the two hours before is in the job. Chance is none.
func TestHabit(t *testing.T) {
	w := &week{}
	for h := range hour(hoursPerWeek) {
		w.highs[h] = coarseLevelOf(1e6)
		if h%hoursPerDay == 2 && h < 2*hoursPerDay {
			w.highs[h] = coarseLevelOf(2e6)
		}
	}
	at := func(day, hour slice) slice { return (day*hoursPerDay + hour) * slicesPerHour }
	if got := w.habit(at(6, 2)); math.Abs(got-1) > 1e-9 {
		t.Errorf("at the beginning of the job: %v octaves, want 1", got)
	}
	if got := w.habit(at(6, 2) + slicesPerHour/2); math.Abs(got-0.75) > 1e-9 {
		t.Errorf("half an hour later: %v octaves, want 0.75", got)
	}
	if got := w.habit(at(6, 12)); got != 0 {
		t.Errorf("at another hour: %v octaves, want 0", got)
	}
	if got := (*week)(nil).habit(at(6, 2)); got != 0 {
		t.Errorf("without a week: %v octaves, want 0", got)
	}
}
