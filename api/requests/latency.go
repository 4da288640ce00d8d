package requests

import (
	"context"
	"errors"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// bins are time bins of equal length.
type bins struct {
	from, to trace.Nanos
	length   time.Duration // a multiple of [stats.Tick]
	ticks    bool          // requests are read from ticks and minutes, not from periods
}

// binsOf returns bins that cover [from, to). If edge isn't 0, one of the bins starts there, rounded down to the minute
// if requests are only kept per minute. If the bins are whole periods, edge is ignored. If the time range is too long,
// the length of the bins is 0.
func binsOf(from, to, edge, now trace.Nanos) bins {
	span, known := to.Sub(from), stats.Tick
	if from < now.Add(-live.TicksKept) {
		known = time.Minute
	}
	b := bins{from: from, to: to, length: time.Minute, ticks: true}
	switch {
	case from < now.Add(-live.MinutesKept) || span > shortSpan:
		return periodBins(from, to)
	case known == stats.Tick && span <= 20*time.Minute:
		b.length = stats.Tick
	case span > live.TicksKept+time.Minute:
		b.length = 10 * time.Minute
	}
	b.align(edge - edge%trace.Nanos(known))
	return b
}

// periodBins returns bins that cover [from, to) and consist of whole periods. If the range is too long, the length of
// the bins is 0.
func periodBins(from, to trace.Nanos) bins {
	b := bins{from: from, to: to, length: group.Period}
	switch span := to.Sub(from); {
	case span > shortSpan:
		return bins{}
	case span > 12*time.Hour:
		b.length = group.LongPeriod
	}
	b.align(0)
	return b
}

// align widens b to whole bins. Bins start at shift plus or minus a multiple of their length.
func (b *bins) align(shift trace.Nanos) {
	b.from = b.begin(b.from, shift)
	if end := b.begin(b.to, shift); end < b.to {
		b.to = end.Add(b.length)
	}
}

// begin returns the start of the bin that contains the instant `at`, given that one of the bins starts at shift.
func (b *bins) begin(at, shift trace.Nanos) trace.Nanos {
	length := trace.Nanos(b.length)
	return at - ((at-shift)%length+length)%length
}

// join merges those windows that start within b into bins. The windows must be in order, and not longer than the bins.
func (b *bins) join(windows []group.PastWindow) []group.PastWindow {
	var all []group.PastWindow
	for i := range windows {
		w := &windows[i]
		if w.From < b.from || w.From >= b.to {
			continue
		}
		from := b.begin(w.From, b.from)
		if n := len(all); n == 0 || all[n-1].From != from {
			all = append(all, group.PastWindow{From: from, To: from.Add(b.length)})
		}
		all[len(all)-1].Merge(group.Past{Total: w.Total, Failed: w.Failed, Latency: w.Latency})
	}
	return all
}

// GetGroupLatency implements contract.StrictServerInterface.
func (a *Requests) GetGroupLatency(
	ctx context.Context, r contract.GetGroupLatencyRequestObject,
) (contract.GetGroupLatencyResponseObject, error) {
	id, err := analysis.ParseHash(r.Group)
	if err != nil {
		return nil, query.NotFound("group")
	}
	edge, err := query.ParseInstant("edge", r.Params.Edge)
	if err != nil {
		return nil, err
	}
	from, to, err := a.span(r.Params.From, r.Params.To, time.Hour)
	if err != nil {
		return nil, err
	}
	l, err := a.latency(ctx, id, from, to, edge)
	if err != nil {
		return nil, err
	}
	d := contract.GetGroupLatency200JSONResponse{
		From:    render.At(l.from),
		To:      render.At(l.to),
		BinNs:   l.length.Nanoseconds(),
		Usual:   l.usual,
		Windows: []contract.Window{},
	}
	for i := range l.requests {
		d.Windows = append(d.Windows, window(&l.requests[i]))
	}
	return d, nil
}

// binnedLatency holds the requests of a group in time bins, and the group's usual durations. usual is nil if they are
// unknown.
type binnedLatency struct {
	bins
	requests []group.PastWindow // bins with requests, oldest first
	usual    *contract.UsualLatency
}

// latency returns the requests of a group between from and to, in bins. See [binsOf] for edge. It returns a refusal if
// the time range is too long or the group is unknown.
func (a *Requests) latency(ctx context.Context, id analysis.Hash, from, to, edge trace.Nanos) (*binnedLatency, error) {
	b := binsOf(from, to, edge, trace.Nanos(a.options.Clock().UnixNano()))
	if b.length == 0 {
		return nil, refusal.New(refusal.Malformed, "the time range is too long",
			"ask for at most two days, or use /groups/{group}/history")
	}
	var windows, present []group.PastWindow // present: from the current period
	var err error
	if b.ticks {
		if windows, err = a.store.Ticks.Windows(id, b.from, b.to); err != nil {
			return nil, err
		}
	}
	if len(windows) == 0 { // e.g. if there are too many groups for this one to have ticks
		b = periodBins(from, to)
		if windows, err = a.store.Past.Periods(id, b.from, b.to); err != nil {
			return nil, err
		}
	}
	var usual *contract.UsualLatency
	known := false
	err = a.reader.Ask(ctx, func(c *engine.View) {
		g := c.Groups.Group(id)
		if known = g != nil; !known {
			return
		}
		usual = usualLatency(g)
		if start := group.PeriodOf(c.Ended); !b.ticks && c.Ended != 0 {
			w := group.PastWindow{From: start, To: c.Ended}
			if g.InPeriod(start, &w.Past); w.Total.N > 0 {
				present = append(present, w)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if n := len(windows); n > 0 && len(present) > 0 && windows[n-1].From >= present[0].From {
		present = nil // the period has ended in the meantime
	}
	if !known && len(windows) == 0 {
		return nil, query.NotFound("group")
	}
	return &binnedLatency{bins: b, requests: b.join(append(windows, present...)), usual: usual}, nil
}

// Around returns the durations of a group's requests between from and to, in bins. One of the bins starts at edge,
// unless the time span is so long that only windows are kept for it. The result is empty if the durations aren't kept.
func (a *Requests) Around(
	ctx context.Context, id analysis.Hash, from, to, edge trace.Nanos,
) ([]contract.PastWindow, error) {
	var all []group.Numbers
	var err error
	if to.Sub(from) > shortSpan {
		all, err = a.store.Past.Windows(id, from, to, true)
	} else {
		var l *binnedLatency
		if l, err = a.latency(ctx, id, from, to, edge); l != nil {
			for i := range l.requests {
				all = append(all, l.requests[i].Numbers(l.requests[i].From, l.requests[i].To))
			}
		}
	}
	if errors.Is(err, refusal.NotFound) {
		return nil, nil
	}
	return pastWindows(all), err
}

// usualLatency returns the durations of a group's healthy requests, or nil if there are no such requests or no other
// requests have been judged against them yet.
func usualLatency(g *group.Group) *contract.UsualLatency {
	w := &g.Reference
	if w.Total.N == 0 || g.Current.Total.N == 0 && !g.Expectation.Learned {
		return nil
	}
	q := func(p float64) *float64 { return render.Number(float64(w.Latency.Quantile(p))) }
	return &contract.UsualLatency{
		Requests: int64(w.Total.N),
		MeanNs:   render.Number(w.Total.Mean()),
		P10Ns:    q(0.1),
		P50Ns:    q(0.5),
		P90Ns:    q(0.9),
		P99Ns:    q(0.99),
	}
}
