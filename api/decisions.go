package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// place is where a decision stands in the log: when its epoch ended, and which of that epoch it is. It identifies the decision.
type place struct {
	at    trace.Nanos
	index int
}

// String returns p as identities of decisions are written.
func (p place) String() string { return fmt.Sprintf("%d-%d", p.at, p.index) }

// parsePlace reads what String wrote.
func parsePlace(text string) (p place, ok bool) {
	at, index, found := strings.Cut(text, "-")
	n, err := strconv.ParseInt(at, 10, 64)
	i, bad := strconv.Atoi(index)
	return place{trace.Nanos(n), i}, found && err == nil && bad == nil && n > 0 && n < int64(trace.MaxNanos) && i >= 0
}

// recorded is a decision with its place.
type recorded struct {
	place
	*search.Decision
}

// located gives decisions, in the order in which they were made and of whole epochs, their places.
func located(decisions []search.Decision) []recorded {
	all := make([]recorded, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		all[i] = recorded{place{d.At, 0}, d}
		if i > 0 && all[i-1].at == d.At {
			all[i].index = all[i-1].index + 1
		}
	}
	return all
}

// decisionQuery says which decisions are wanted.
type decisionQuery struct {
	from, to trace.Nanos   // made in [from, to); to 0: no bound
	problem  analysis.Hash // those of its investigation; zero: all
	before   place         // only earlier ones; zero: all
	limit    int           // most of them
}

// Bounds of a search through the log: what lies further back is left to the next page.
const (
	readDecisions = 1000 // at a time
	readTimes     = 20
)

// find returns decisions, the latest first, and where to go on; nil where there are no more.
func (a *API) find(ctx context.Context, q decisionQuery) (found []recorded, next *place, err error) {
	to := q.to
	if to == 0 {
		to = trace.MaxNanos
	}
	if q.before.at > 0 {
		to = min(to, q.before.at+1)
	}
	for range readTimes {
		decisions, err := a.past.Decisions(q.from, to, readDecisions, true)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range slices.Backward(located(decisions)) {
			if q.before.at > 0 && (d.at > q.before.at || d.at == q.before.at && d.index >= q.before.index) || !q.problem.IsZero() && d.Investigation != q.problem {
				continue
			}
			if len(found) == q.limit {
				return found, &found[q.limit-1].place, nil
			}
			found = append(found, d)
		}
		if len(decisions) < readDecisions {
			return found, nil, nil
		}
		to = decisions[0].At
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	return found, &place{to, 0}, nil
}

// ListDecisions implements contract.StrictServerInterface.
func (a *API) ListDecisions(ctx context.Context, r contract.ListDecisionsRequestObject) (contract.ListDecisionsResponseObject, error) {
	q := &r.Params
	p := pageOf(q.Limit, q.Cursor, "decisions")
	query := decisionQuery{limit: p.limit}
	var err error
	if query.from, err = parseInstant(q.From); err != nil {
		return nil, err
	}
	if query.to, err = parseInstant(q.To); err != nil {
		return nil, err
	}
	if q.Problem != nil {
		if query.problem, err = analysis.ParseHash(*q.Problem); err != nil {
			return nil, notFound("problem")
		}
	}
	if p.cursor != nil && *p.cursor != "" {
		c, err := parseCursor(*p.cursor, p.sort)
		if err != nil {
			return nil, err
		}
		var ok bool
		if query.before, ok = parsePlace(c.ID); !ok {
			return nil, errCursor
		}
	}
	decisions, next, err := a.find(ctx, query)
	if err != nil {
		return nil, err
	}
	list := contract.ListDecisions200JSONResponse{}
	if next != nil {
		list.NextCursor = new(cursor{Sort: p.sort, ID: next.String()}.String())
	}
	list.Items, err = a.decisions(ctx, decisions)
	return list, err
}

// decisions puts decisions into words.
func (a *API) decisions(ctx context.Context, decisions []recorded) ([]contract.Decision, error) {
	all := make([]contract.Decision, 0, len(decisions))
	if len(decisions) == 0 {
		return all, nil
	}
	err := a.ask(ctx, func(c *engine.Core) {
		names := a.reader(c)
		for _, d := range decisions {
			all = append(all, names.decision(d))
		}
	})
	return all, err
}

// GetDecision implements contract.StrictServerInterface.
func (a *API) GetDecision(ctx context.Context, r contract.GetDecisionRequestObject) (contract.GetDecisionResponseObject, error) {
	p, ok := parsePlace(r.Decision)
	if !ok {
		return nil, notFound("decision")
	}
	decisions, err := a.past.Decisions(p.at, p.at+1, readDecisions, false)
	if err != nil {
		return nil, err
	}
	if p.index >= len(decisions) {
		return nil, notFound("decision")
	}
	all, err := a.decisions(ctx, located(decisions)[p.index:p.index+1])
	if err != nil {
		return nil, err
	}
	return contract.GetDecision200JSONResponse(all[0]), nil
}
