package requests

import (
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// maxWindows limits the number of windows in a response.
	maxWindows = 10_000
	// shortSpan is the longest time span with short windows as the default.
	shortSpan = 2 * group.Day
)

// GetGroupHistory implements contract.StrictServerInterface.
func (a *Requests) GetGroupHistory(
	ctx context.Context, r contract.GetGroupHistoryRequestObject,
) (contract.GetGroupHistoryResponseObject, error) {
	id, err := analysis.ParseHash(r.Group)
	if err != nil {
		return nil, query.NotFound("group")
	}
	q := &r.Params
	from, to, err := a.span(q.From, q.To, group.Day)
	if err != nil {
		return nil, err
	}
	long := to.Sub(from) > shortSpan
	if q.Resolution != nil {
		long = *q.Resolution == contract.GetGroupHistoryParamsResolutionLong
	}
	length := group.Period
	if long {
		length = group.LongPeriod
	}
	if to.Sub(from)/length > maxWindows {
		return nil, refusal.New(refusal.Malformed, "the time range has too many windows",
			"ask for at most 37 days with short windows, or 111 with long ones")
	}
	var present []group.Numbers // of the current period
	known := false
	err = a.reader.Ask(ctx, func(c *engine.View) {
		g := c.Groups.Group(id)
		if known = g != nil; !known || c.Ended == 0 {
			return
		}
		var p group.Past
		start := group.PeriodOf(c.Ended)
		if g.InPeriod(start, &p); p.Total.N > 0 && start < to && c.Ended > from && !long {
			present = append(present, p.Numbers(start, c.Ended))
		}
	})
	if err != nil {
		return nil, err
	}
	windows, err := a.store.Past.Windows(id, from, to, long)
	if err != nil {
		return nil, err
	}
	if !known && len(windows) == 0 {
		return nil, query.NotFound("group")
	}
	if n := len(windows); n > 0 && len(present) > 0 && windows[n-1].From >= present[0].From {
		present = nil // the period has ended in the meantime
	}
	h := contract.GetGroupHistory200JSONResponse{
		From: render.At(from), To: render.At(to), Windows: pastWindows(windows, present),
		Compared: []contract.PastWindow{},
	}
	if before := comparedWith(q.Compare); before > 0 {
		compared, err := a.store.Past.Windows(id, from.Add(-before), to.Add(-before), long)
		if err != nil {
			return nil, err
		}
		h.Compared = pastWindows(compared)
	}
	return h, nil
}

// span parses the bounds of a time span. If last is nil, the span ends now. If first is nil, the span has the given
// length. It returns ErrOrder if the span is empty.
func (a *Requests) span(first, last *string, length time.Duration) (from, to trace.Nanos, err error) {
	if from, to, err = query.ParseInterval(first, last); err != nil {
		return 0, 0, err
	}
	if to == 0 {
		to = trace.Nanos(a.options.Clock().UnixNano())
	}
	if from == 0 {
		from = to.Add(-length)
	}
	if from >= to {
		return 0, 0, query.ErrOrder
	}
	return from, to, nil
}

// comparedWith returns how much earlier the time span to compare with is, or 0 if there is no comparison.
func comparedWith(with *contract.GetGroupHistoryParamsCompare) time.Duration {
	switch query.Value(with, contract.GetGroupHistoryParamsCompareNone) {
	case contract.GetGroupHistoryParamsCompareYesterday:
		return group.Day
	case contract.GetGroupHistoryParamsCompareLastWeek:
		return 7 * group.Day
	case contract.GetGroupHistoryParamsCompareNone:
	}
	return 0
}

func pastWindows(lists ...[]group.Numbers) []contract.PastWindow {
	all := []contract.PastWindow{}
	for _, list := range lists {
		for i := range list {
			w := &list[i]
			all = append(all, contract.PastWindow{
				From:   render.At(w.From),
				To:     render.At(w.To),
				Count:  int64(w.Count),
				Failed: int64(w.Failed),
				MeanNs: render.Number(w.Mean),
				Cov:    render.Number(w.CoV),
				P50Ns:  render.Number(w.P50),
				P99Ns:  render.Number(w.P99),
			})
		}
	}
	return all
}
