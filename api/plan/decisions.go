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
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// decisionID identifies a decision by the end of its epoch and its index within the epoch.
type decisionID struct {
	at    trace.Nanos
	index int
}

// String returns the ID as in the contract.
func (id decisionID) String() string { return fmt.Sprintf("%d-%d", id.at, id.index) }

// less reports whether id is earlier in the log than other.
func (id decisionID) less(other decisionID) bool {
	return id.at < other.at || id.at == other.at && id.index < other.index
}

// parseDecisionID parses the text that String returns.
func parseDecisionID(text string) (id decisionID, ok bool) {
	at, index, found := strings.Cut(text, "-")
	n, err := strconv.ParseInt(at, 10, 64)
	i, indexErr := strconv.Atoi(index)
	return decisionID{trace.Nanos(n), i}, found && err == nil && indexErr == nil && n > 0 && n < int64(trace.MaxNanos) && i >= 0
}

// loggedDecision is a decision with its ID.
type loggedDecision struct {
	id       decisionID
	decision *search.Decision
}

// withIDs returns decisions with their IDs. The decisions are in the order of the log, and of whole epochs.
func withIDs(decisions []search.Decision) []loggedDecision {
	all := make([]loggedDecision, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		all[i] = loggedDecision{decisionID{d.At, 0}, d}
		if i > 0 && all[i-1].id.at == d.At {
			all[i].id.index = all[i-1].id.index + 1
		}
	}
	return all
}

// decisionQuery selects decisions.
type decisionQuery struct {
	from, to trace.Nanos    // end of the epoch in [from, to); to 0: no bound
	subject  search.Subject // only of its investigation; zero: all
	before   decisionID     // only earlier ones; zero: all
	limit    int            // maximum number
}

// Limits of a search through the log. The next page continues with older decisions.
const (
	readDecisions = 1000 // per read of the store
	maxReads      = 20
)

// find returns the selected decisions, latest first, and the ID before which the next page begins; nil if this is the
// last one.
func (a *API) find(ctx context.Context, q decisionQuery) (found []loggedDecision, next *decisionID, err error) {
	to := q.to
	if to == 0 {
		to = trace.MaxNanos
	}
	if q.before.at > 0 {
		to = min(to, q.before.at+1)
	}
	for range maxReads {
		decisions, err := a.history.Decisions(q.from, to, readDecisions, true)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range slices.Backward(withIDs(decisions)) {
			if q.before.at > 0 && !d.id.less(q.before) || !q.subject.IsZero() && d.decision.Subject != q.subject {
				continue
			}
			if len(found) == q.limit {
				return found, &found[q.limit-1].id, nil
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
	return found, &decisionID{to, 0}, nil
}

// ListDecisions implements contract.StrictServerInterface.
func (a *API) ListDecisions(ctx context.Context, r contract.ListDecisionsRequestObject) (contract.ListDecisionsResponseObject, error) {
	q := &r.Params
	p := pageOf(q.Limit, q.Cursor, "decisions")
	query := decisionQuery{limit: p.limit}
	var err error
	if query.from, query.to, err = parseInterval(q.From, q.To); err != nil {
		return nil, err
	}
	switch {
	case q.Problem != nil && q.Incident != nil:
		return nil, refusal.New(refusal.Invalid, "incident: not together with problem", "")
	case q.Incident != nil:
		id, err := parseIncident(*q.Incident)
		if err != nil {
			return nil, notFound(string(aboutIncident))
		}
		query.subject = search.OfIncident(id)
	case q.Problem != nil:
		id, err := analysis.ParseHash(*q.Problem)
		if err != nil {
			return nil, notFound("problem")
		}
		query.subject = search.OfProblem(id)
	}
	if p.cursor != nil && *p.cursor != "" {
		c, err := parseCursor(*p.cursor, p.sort)
		if err != nil {
			return nil, err
		}
		var ok bool
		if query.before, ok = parseDecisionID(c.ID); !ok {
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

// decisions converts decisions to the types of the contract.
func (a *API) decisions(ctx context.Context, decisions []loggedDecision) ([]contract.Decision, error) {
	all := make([]contract.Decision, 0, len(decisions))
	if len(decisions) == 0 {
		return all, nil
	}
	err := a.ask(ctx, func(c *engine.View) {
		names := a.renderer(c)
		for _, d := range decisions {
			all = append(all, names.decision(&d))
		}
	})
	return all, err
}

// GetDecision implements contract.StrictServerInterface.
func (a *API) GetDecision(ctx context.Context, r contract.GetDecisionRequestObject) (contract.GetDecisionResponseObject, error) {
	id, ok := parseDecisionID(r.Decision)
	if !ok {
		return nil, notFound("decision")
	}
	decisions, err := a.history.Decisions(id.at, id.at+1, readDecisions, false)
	if err != nil {
		return nil, err
	}
	if id.index >= len(decisions) {
		return nil, notFound("decision")
	}
	all, err := a.decisions(ctx, withIDs(decisions)[id.index:id.index+1])
	if err != nil {
		return nil, err
	}
	return contract.GetDecision200JSONResponse(all[0]), nil
}
