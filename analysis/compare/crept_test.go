package compare

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestCrept compares the last hours with the same hours a week before. All three must be slower.
func TestCrept(t *testing.T) {
	table := &trace.Table{}
	h := history.NewSites(table)
	const normal = 100 * time.Millisecond
	playDays(table, h, 0, 7*testDay, func(time.Duration) time.Duration { return normal })
	end := 7 * testDay
	for i, x := range []struct {
		factor int // in tenths
		want   float64
	}{{10, 0}, {15, 0}, {13, 0}, {14, 0.3}, {12, 0.2}, {10, 0}, {14, 0}} {
		playDays(table, h, end, end+time.Hour,
			func(time.Duration) time.Duration { return normal / 10 * time.Duration(x.factor) })
		end += time.Hour
		playDays(table, h, end, end+10*time.Minute, func(time.Duration) time.Duration { return normal })
		c := NewComparer(h).Crept(trace.Nanos(end+10*time.Minute), history.WeekAgo)
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

// TestCreptMonth compares the last three days with the same days four weeks before. They show a leak of 1 % per day,
// which a comparison with the week before hardly does.
func TestCreptMonth(t *testing.T) {
	table := &trace.Table{}
	h := history.NewSites(table)
	const begins = 29
	growth := func(now time.Duration, than history.Earlier) float64 {
		c := NewComparer(h).Crept(trace.Nanos(now), than)
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
		if got := growth(now+5*time.Minute, history.MonthAgo); math.Abs(got-x.month) > 0.015 {
			t.Errorf("day %d: grown by %.3f in four weeks, want %.2f", x.day, got, x.month)
		}
		if got := growth(now+5*time.Minute, history.WeekAgo); math.Abs(got-x.week) > 0.015 {
			t.Errorf("day %d: grown by %.3f in a week, want %.2f", x.day, got, x.week)
		}
	}
}

// TestCreptInnerSpans removes an INTERNAL span from a service after a week. The service's own time is more than twice
// as long, but its calls take as long as before: nothing crept. If they take longer, that is reported.
func TestCreptInnerSpans(t *testing.T) {
	for _, factor := range []float64{1, 1.4} {
		table := &trace.Table{}
		h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
		service := table.Symbol("shop")
		op := func(name string, kind trace.Kind) trace.Op { return table.Op(service, table.Symbol(name), kind) }
		now, last := trace.Nanos(0), trace.Nanos(8*testDay)
		for ; now < last; now = now.Add(10 * time.Minute) {
			tally, took := history.NewTally(), trace.Nanos(100*time.Millisecond)
			changed := now >= last.Add(-8*time.Hour)
			if changed {
				took = trace.Nanos(factor * float64(took))
			}
			for at := now; at < now.Add(history.SliceLength); at = at.Add(time.Second) {
				r := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{{
					ID:      1,
					Start:   at,
					End:     at + took,
					Op:      op("GET /", trace.Server),
					Service: service,
					Kind:    trace.Server,
				}}}
				if !changed {
					inner := r.Spans[0]
					inner.ID, inner.Parent, inner.Op, inner.Kind = 2, 1, op("load", trace.Internal), trace.Internal
					inner.End = at + took*6/10
					r.Spans = append(r.Spans, inner)
				}
				tally.Observe(x.Extract(r))
			}
			h.Merge(tally)
			h.Age(now.Add(10 * time.Minute))
		}
		h.Age(now.Add(5 * time.Minute))
		got := 0.0
		for _, s := range NewComparer(h).Crept(now.Add(5*time.Minute), history.WeekAgo).Suspects {
			got = max(got, s.Whole.Excess/max(1, s.Whole.Usual))
		}
		if math.Abs(got-(factor-1)) > 0.05 {
			t.Errorf("crept by %.2f, want %.2f", got, factor-1)
		}
	}
}

// TestCreptWire delays the calls between two services after a week. The callee answers other callers as before, so the
// suspect names the way from the caller.
func TestCreptWire(t *testing.T) {
	table := &trace.Table{}
	h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
	span := func(id, parent trace.SpanID, service, name string, kind trace.Kind, start, end trace.Nanos) trace.Span {
		s := table.Symbol(service)
		return trace.Span{
			ID: id, Parent: parent, Start: start, End: end, Service: s, Kind: kind,
			Op: table.Op(s, table.Symbol(name), kind),
		}
	}
	ms := trace.Nanos(time.Millisecond)
	now, last := trace.Nanos(0), trace.Nanos(8*testDay)
	for ; now < last; now = now.Add(10 * time.Minute) {
		tally := history.NewTally()
		for at := now; at < now.Add(history.SliceLength); at = at.Add(time.Second) {
			for _, caller := range []string{"shop", "mail"} {
				wire := 10 * ms
				if caller == "shop" && now >= last.Add(-8*time.Hour) {
					wire = 60 * ms
				}
				tally.Observe(x.Extract(&trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{
					span(1, 0, caller, "GET /", trace.Server, at, at+wire+40*ms),
					span(2, 1, caller, "GET /stock", trace.Client, at, at+wire+30*ms),
					span(3, 2, "stock", "GET /stock", trace.Server, at+wire/2, at+wire/2+30*ms),
				}}))
			}
		}
		h.Merge(tally)
		h.Age(now.Add(10 * time.Minute))
	}
	h.Age(now.Add(5 * time.Minute))
	c := NewComparer(h).Crept(now.Add(5*time.Minute), history.WeekAgo)
	if s := c.Suspects[0]; s.Service != table.Symbol("stock") || s.From != table.Symbol("shop") || s.Score == 0 {
		t.Errorf("got %+v, want stock, called by shop", s)
	}
}
