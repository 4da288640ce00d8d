package cases

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
)

// ListProblems implements contract.StrictServerInterface.
func (a *Cases) ListProblems(
	ctx context.Context, r contract.ListProblemsRequestObject,
) (contract.ListProblemsResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	q := &r.Params
	notes := a.options.Notes.All(a.options.Clock())
	if query.Value(q.Closed, false) {
		problems, order, err := a.closedProblems()
		if err != nil {
			return nil, err
		}
		return listProblems(q, s, problems, order, "closed", notes)
	}
	sort := string(query.Value(q.Sort, contract.ListProblemsParamsSortRank))
	order := s.Sorted("problems by "+sort, func(l *query.List[analysis.Hash]) { addProblems(l, s, sort) })
	return listProblems(q, s, s.Problems, order, sort, notes)
}

// listProblems returns a page of those problems that match q, in the given order, with their notes. sort is the name of
// the order in cursors.
func listProblems[ID any](
	q *contract.ListProblemsParams, s *epoch.Snapshot, problems []contract.Problem,
	order *query.List[ID], sort string, notes map[string]contract.Notes,
) (contract.ListProblemsResponseObject, error) {
	requestType, unknown := s.TypeParameter(q.RequestType)
	muted := query.Value(q.Muted, contract.ListProblemsParamsMutedFalse)
	keep := func(i int32) bool {
		p := &problems[i]
		isMuted := notes[p.ID].Muted != nil
		named := requestType.IsZero() && !unknown || p.RequestType == requestType.String() ||
			p.RequestTypeName == query.Value(q.RequestType, "")
		asked := muted == contract.ListProblemsParamsMutedAll ||
			isMuted == (muted == contract.ListProblemsParamsMutedTrue)
		return named && asked &&
			query.Value(q.Level, p.Level) == p.Level && query.Value(q.Kind, p.Kind) == p.Kind &&
			query.Value(q.Onset, p.Onset) == p.Onset && query.Value(q.State, p.State) == p.State &&
			(q.Q == nil || query.Matches(p.Diagnosis+" "+p.RequestTypeName+" "+p.ID, q.Q))
	}
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, sort), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListProblems200JSONResponse{
		Items:          make([]contract.Problem, 0, len(items)),
		NextCursor:     next,
		Total:          order.Count(keep),
		Epoch:          s.Epoch(),
		Learning:       !s.Learned,
		LearningLeftNs: render.Remaining(s.Left),
	}
	for _, i := range items {
		p := problems[i]
		p.Notes = notes[p.ID]
		if query.Value(q.Explain, false) {
			p.Why = new(why(&p))
		}
		list.Items = append(list.Items, p)
	}
	return list, nil
}

// addProblems adds the problems of s to l, each with its sort key. sort is the name of the order.
func addProblems(l *query.List[analysis.Hash], s *epoch.Snapshot, sort string) {
	for i := range s.Problems {
		p := &s.Problems[i]
		key := float64(p.Rank)
		switch contract.ListProblemsParamsSort(sort) {
		case contract.ListProblemsParamsSortRank:
		case contract.ListProblemsParamsSortImpact:
			key = -query.Value(p.Impact, math.NaN())
		case contract.ListProblemsParamsSortSince:
			key = float64(query.Value(p.Since, time.Time{}).UnixNano())
			if p.Since == nil {
				key = math.NaN()
			}
		case contract.ListProblemsParamsSortCov:
			key = -query.Value(p.Cov.Value, math.NaN())
		case contract.ListProblemsParamsSortP99:
			key = -float64(query.Value(p.P99Ns, 0))
		case contract.ListProblemsParamsSortRate:
			key = -query.Value(p.Rate, math.NaN())
		}
		l.Add(key, s.IDs[i], int32(i))
	}
}

// shownDecisions limits the number of decisions shown with a problem.
const shownDecisions = 100

// GetProblem implements contract.StrictServerInterface.
func (a *Cases) GetProblem(
	ctx context.Context, r contract.GetProblemRequestObject,
) (contract.GetProblemResponseObject, error) {
	id, err := analysis.ParseHash(r.Problem)
	if err != nil {
		return nil, query.NotFound("problem")
	}
	decisions, _, err := decisionlog.Find(ctx, a.store.Decisions,
		decisionlog.Query{Subject: search.OfProblem(id), Limit: shownDecisions})
	if err != nil {
		return nil, err
	}
	var d *contract.GetProblem200JSONResponse
	enabled := make(map[string]bool)
	err = a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		names := renderer{s.Renderer(c)}
		enabled = names.enabled()
		problems := c.Problems.Open()
		i := slices.IndexFunc(problems, func(p detect.Problem) bool { return p.ID == id })
		row, known := s.ByID[id.String()]
		if i < 0 || !known {
			return
		}
		v := c.Searches.Investigation(search.OfProblem(id))
		d = names.problemDetail(&s.Problems[row], &problems[i], v)
		names.addDecisions(d, decisions)
		names.setNext(d, names.nextOfOpen(names.latestIncident(&d.Problem, id), &problems[i], v, d.Missing))
	})
	if err != nil {
		return nil, err
	}
	if d == nil {
		if d, err = a.closedProblem(ctx, id, decisions); err != nil {
			return nil, err
		}
	}
	if d.Located, err = a.locatedPlace(enabled, "", search.OfProblem(id)); err != nil {
		return nil, err
	}
	d.Problem.Notes = a.options.Notes.All(a.options.Clock())[id.String()]
	return d, nil
}

// problemDetail returns a problem with its evidence. row is its entry in lists, and v its investigation or nil.
func (r renderer) problemDetail(
	row *contract.Problem, p *detect.Problem, v *search.Investigation,
) *contract.GetProblem200JSONResponse {
	edges := p.Edges
	if g := r.Core.Groups.Group(p.Group); g != nil && row.Onset == contract.OnsetChronic {
		edges = withEstimates(edges, r.Core.Kept.Of(g))
	}
	d := &contract.GetProblem200JSONResponse{
		Problem:      *row,
		EValue:       render.Number(p.EValue),
		Shift:        render.Number(p.Shift),
		Edges:        r.Edges(edges),
		Refined:      r.refined(r.ownRefined(p, v)),
		Explanations: r.Explained(p.Explanations),
		Decisions:    []contract.Decision{},
		Missing:      []string{},
	}
	r.addCauses(d, p)
	if v != nil {
		d.Investigation = r.InvestigationDetail(v)
	}
	return d
}

// ownRefined returns the shares of p from tracepoints enabled by its own investigation v, by the investigation of its
// incident, or by a person. Requests also run tracepoints of other investigations, but these say nothing about p.
func (r renderer) ownRefined(p *detect.Problem, v *search.Investigation) []detect.RefinedShare {
	if id, within := r.Core.Incidents.With(p.ID); within && v == nil {
		v = r.Core.Searches.Investigation(search.OfIncident(id))
	}
	return slices.DeleteFunc(slices.Clone(p.Refined), func(x detect.RefinedShare) bool {
		overridden := slices.ContainsFunc(r.Core.Searches.State().Overrides,
			func(o search.Override) bool { return o.Tracepoint == x.Tracepoint })
		return !overridden && (v == nil || !slices.Contains(v.Tried, x.Tracepoint))
	})
}

// addDecisions adds the decisions about a problem to d. decisions must be ordered latest first. d.Missing is taken from
// the latest decision that names missing operations.
func (r renderer) addDecisions(d *contract.GetProblem200JSONResponse, decisions []decisionlog.Logged) {
	for k := range decisions {
		d.Decisions = append(d.Decisions, r.Decision(&decisions[k]))
		if len(d.Missing) == 0 {
			d.Missing = r.Operations(decisions[k].Decision.Missing)
		}
	}
}

// latestIncident returns the latest incident that contained the problem p while p was open, or nil if no incident did.
func (r renderer) latestIncident(p *contract.Problem, id analysis.Hash) *engine.Incident {
	all := r.Core.Incidents.All()
	for i := range slices.Backward(all) {
		x := &all[i]
		before := !x.IsOpen() && p.Since != nil && render.At(x.Closed()).Before(*p.Since)
		if slices.Contains(x.Problems, id) && !before {
			return x
		}
	}
	return nil
}

// advice returns the next step for an incident.
func (r renderer) advice(x *engine.Incident) describe.Sentence {
	return describe.Advice(r.Names, x, r.Core.Searches.Investigation(search.OfIncident(x.ID)), r.Core.Annotations)
}

// setNext sets the next step for a problem.
func (r renderer) setNext(d *contract.GetProblem200JSONResponse, next describe.Sentence) {
	d.Next, d.NextParts = next.String(), render.Sentence(r.Names, next)
}

// nextOfOpen returns the next step for the open problem p. x is its incident, and v its investigation; both may be nil.
// If the incident closed because requests stopped, the text starts with the next step for the incident, because nothing
// has shown since then that the cause has gone.
func (r renderer) nextOfOpen(
	x *engine.Incident, p *detect.Problem, v *search.Investigation, missing []string,
) describe.Sentence {
	noSlower := p.Kind == detect.KindShifted && !p.Slower()
	var advice describe.Sentence
	switch {
	case x == nil:
	case x.IsOpen() && r.Core.Searches.Investigation(search.OfIncident(x.ID)) != nil:
		advice = r.advice(x)
	case x.IsOpen() && v == nil: // it is not searched: no request waits for its first suspect
		return describe.Say("It is part of an incident. ").And(r.advice(x))
	case x.NobodyKnows():
		s := describe.Say("It was part of an incident. ").And(r.advice(x))
		if v != nil && (v.Status == search.Located || v.Status == search.Explained) {
			s = s.And(describe.Say(" ")).And(r.next(v, nil, nil, noSlower))
		}
		return s
	}
	return r.next(v, advice, missing, noSlower)
}

// next describes the next step for a problem: either Sibyl's, or a remedy that a person can apply. advice is the next
// step for the problem's incident, or nil if the problem belongs to no incident. noSlower means that the problem is a
// change of the call flow, or of failures, without added latency.
func (r renderer) next(
	v *search.Investigation, advice describe.Sentence, missing []string, noSlower bool,
) describe.Sentence {
	if v == nil || v.Status == search.Gone {
		if advice != nil {
			return describe.Say("It is part of an incident, which Sibyl investigates as a whole. ").And(advice)
		}
		if noSlower {
			return describe.Say("Look at sample traces: " +
				"Sibyl searches for added latency, and these requests are no slower.")
		}
		return describe.Say("Queued: too many other problems are being investigated.")
	}
	switch v.Status {
	case search.Opened:
		return describe.Say("Just opened: tracepoints are chosen when the epoch ends, if any fit the budget.")
	case search.Investigating:
		return describe.Say(units.Plural(len(v.Requested), "tracepoint") +
			" on: waiting for requests that show where the time goes.")
	case search.Located, search.Explained:
		if op := v.Answer(); op != 0 {
			return withReason(describe.Say("Look at %s.", describe.Name(r.Op(op))), v.Reason)
		}
		return withReason(nil, v.Reason)
	case search.Exhausted:
		untried := len(v.Tried) == 0 && v.BudgetStarved == 0
		s := describe.Say("Add tracepoints ")
		switch {
		case len(missing) > 0:
			s.Plain("within ")
			for i, m := range missing {
				if i > 0 {
					s.Plain(", ")
				}
				s = append(s, describe.Name(m))
			}
		case untried:
			s.Plain("where the time is lost")
		default:
			return withReason(describe.Say("The available tracepoints show no more."), v.Reason)
		}
		if untried {
			s.Plain(": Sibyl found none to try.")
		} else {
			s.Plain(": the existing ones show no more.")
		}
		return withReason(s, v.Reason)
	case search.Gone: // handled above
	}
	return nil
}

// withReason returns s followed by reason as a separate sentence, or s if reason is empty.
func withReason(s describe.Sentence, reason string) describe.Sentence {
	if reason == "" {
		return s
	}
	if len(s) > 0 {
		s.Plain(" ")
	}
	s.Plain(strings.ToUpper(reason[:1]) + reason[1:] + ".")
	return s
}

// AcknowledgeProblem implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeProblem(
	ctx context.Context, r contract.AcknowledgeProblemRequestObject,
) (contract.AcknowledgeProblemResponseObject, error) {
	notes, err := a.note(ctx, aboutProblem, r.Problem, Acknowledged, r.Body)
	return contract.AcknowledgeProblem200JSONResponse(notes), err
}

// UnacknowledgeProblem implements contract.StrictServerInterface.
func (a *Cases) UnacknowledgeProblem(
	_ context.Context, r contract.UnacknowledgeProblemRequestObject,
) (contract.UnacknowledgeProblemResponseObject, error) {
	return contract.UnacknowledgeProblem204Response{}, a.removeNote(r.Problem, Acknowledged)
}

// MuteProblem implements contract.StrictServerInterface.
func (a *Cases) MuteProblem(
	ctx context.Context, r contract.MuteProblemRequestObject,
) (contract.MuteProblemResponseObject, error) {
	notes, err := a.note(ctx, aboutProblem, r.Problem, Muted, r.Body)
	return contract.MuteProblem200JSONResponse(notes), err
}

// UnmuteProblem implements contract.StrictServerInterface.
func (a *Cases) UnmuteProblem(
	_ context.Context, r contract.UnmuteProblemRequestObject,
) (contract.UnmuteProblemResponseObject, error) {
	return contract.UnmuteProblem204Response{}, a.removeNote(r.Problem, Muted)
}

// why explains the rank of a problem.
func why(p *contract.Problem) string {
	text := "changed: significantly worse than its own history"
	if p.Onset == contract.OnsetChronic {
		text = "chronic: high without a change, ranked after problems that changed"
	}
	return text + "; by impact, " + describe.PerSecond(query.Value(p.Impact, math.NaN())) + ", rank " +
		strconv.Itoa(p.Rank)
}
