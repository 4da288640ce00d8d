package search

import (
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules for ending a search.
const (
	leastShare     = 0.1 // minimum share of the problem that the first suspect must carry to be located
	explainedShare = 0.5 // minimum share of the leading operation that an explanation must account for
	maxExplaining  = 4   // maximum number of variables switched on for a located suspect
	explainEpochs  = 3   // calls of Next that wait for a variable to explain a located suspect
)

// conclude ends the search. If located is true, conclude locates the best suspect, unless the suspect carries less than
// leastShare or is an operation without a known location inside. Two kinds of operations need no known location inside:
// calls of something that emits no spans, and spans that the application itself starts within an operation, because
// such a span already names a place. Otherwise the search is exhausted, for the given reason if located is false.
func (s *investigationStep) conclude(located bool, reason string) {
	top := &s.v.Suspects[0]
	switch {
	case located && top.Share < leastShare:
		reason = fmt.Sprintf("the problem is spread over many locations; the largest share is %.1f %%", 100*top.Share)
	case located && (!s.ranking().undivided() || s.inside(top) || leavesApplication(s.epoch.in.Table, top.Op)):
		s.settle(Located, s.whyNotBelow(top))
		return
	case located && s.betweenServices(top.Op):
		reason = "the time passes between two services, where no tracepoint runs"
	case located:
		reason = "no tracepoint divides the leading operation"
	}
	s.decision.Missing = s.ranking().missing()
	s.settle(Exhausted, reason)
}

// inside reports whether x is a span within an operation of its service, neither an entry nor a call. The operations of
// an incident have no callers; there, an entry of the same service must be among the operations that carry the problem
// or the suspects.
func (s *investigationStep) inside(x *Suspect) bool {
	table := s.epoch.in.Table
	if table == nil || table.Operation(x.Op).Kind != trace.Internal {
		return false
	}
	isEntry := func(op trace.Op) bool {
		entry := table.Operation(op)
		return entry.Service == table.Operation(x.Op).Service &&
			(entry.Kind == trace.Server || entry.Kind == trace.Consumer)
	}
	return table.Context(x.Context).Parent != 0 ||
		slices.ContainsFunc(slices.Concat(s.searched, s.rest), func(o *operationScope) bool { return isEntry(o.op) }) ||
		slices.ContainsFunc(s.v.Suspects, func(o Suspect) bool { return isEntry(o.Op) })
}

// betweenServices reports whether step calls another service. If so, its own time is spent on the way there and back.
func (s *investigationStep) betweenServices(step trace.Op) bool {
	table := s.epoch.in.Table
	return table != nil && table.Target(step) != 0 && table.Operation(step).Kind == trace.Client
}

// whyNotBelow returns the reason why the search located x rather than something below it.
func (s *investigationStep) whyNotBelow(x *Suspect) string {
	switch {
	case x.Open > 0:
		return "no candidate below it fits the budget"
	case s.returns(func(*location) bool { return true }):
		return "records of the candidates below it are missing"
	}
	return "no candidate below it is left"
}

// part formats share as a whole percentage, or as "all" if it would round to 100 or more: noise may push it above 1.
func part(share float64) string {
	if share >= 0.995 {
		return "all"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// exhaust decides what to do when no candidates are left. It watches the best suspects until one of them stands out, or
// until more requests would not change the result.
func (s *investigationStep) exhaust() {
	v := s.v
	v.Idle++
	top := &v.Suspects[0]
	over := v.Idle > idleEpochs || top.Requests >= enoughRequests || top.Tracepoint == 0
	switch {
	case s.leads():
		s.conclude(true, "")
	case over:
		s.conclude(top.Share > 1.5*runnerUp(s.v.Suspects) && top.Open == 0,
			"no candidates are left, and no location stands out")
	default:
		s.setStatus(Investigating, "no candidates are left; watching the top suspects")
		s.watch()
	}
}

// watch switches the two best suspects on for all requests.
func (s *investigationStep) watch() {
	for k := range s.v.Suspects[:min(len(s.v.Suspects), 2)] {
		x := &s.v.Suspects[k]
		if x.Tracepoint == 0 || s.excluded(x.Tracepoint) != "" || s.epoch.in.State.requires(x.Tracepoint) {
			continue
		}
		at := s.v.requested(x.Tracepoint)
		if at < 0 {
			s.decision.Picks = append(s.decision.Picks, Pick{
				Tracepoint: x.Tracepoint, Op: x.Op, Context: x.Context, Score: x.Share, Whole: true, Arms: allArms,
				Reason: "compares the top suspects",
			})
		} else {
			s.v.Requested[at].Arms = allArms
		}
	}
	s.requestPicks()
}

// settle sets the final status of the search and ends all its requests.
func (s *investigationStep) settle(status Status, reason string) {
	s.setStatus(status, reason)
	s.endRequests()
	s.v.Idle = 0
}

// endRequests switches off all tracepoints that the investigation requests.
func (s *investigationStep) endRequests() {
	for _, r := range s.v.Requested {
		s.decision.Off = append(s.decision.Off, Off{r.Tracepoint, WhyClosed})
	}
	s.v.Requested = nil
}

// explain looks for an explanation of the located suspect: waits in the kernel, computing, or a variable.
func (s *investigationStep) explain() {
	v := s.v
	if why := s.explanation(); why != "" {
		s.settle(Explained, why)
		return
	}
	if v.Idle++; v.Idle > explainEpochs {
		s.endRequests()
		return
	}
	if v.Idle > 1 {
		return
	}
	for _, tp := range s.variables() {
		s.decision.Picks = append(s.decision.Picks, Pick{
			Tracepoint: tp, Context: v.Suspects[0].Context, Score: v.Suspects[0].Share, Arms: allArms, Whole: true,
			Reason: "its values may explain the location",
		})
	}
	if s.problem.Onset == detect.Changed && !s.epoch.othersTurn(s.problem.Problem, true) {
		for _, tp := range s.waits() {
			s.decision.Picks = append(s.decision.Picks, Pick{
				Tracepoint: tp, Context: v.Suspects[0].Context, Score: v.Suspects[0].Share,
				Arms: s.armsFor(wantedRequests), Reason: "its waits may explain the location",
			})
		}
	}
	s.requestPicks()
}

// explanation describes the cause that accounts for much of the leading operation: waits in the kernel, or a variable
// that explains at least half of the durations or of an edge of the operation. If neither does and a function carries
// much without waiting in the kernel, the cause is that it computes. It returns "" if no explanation is known.
func (s *investigationStep) explanation() string {
	if len(s.searched) == 0 {
		return ""
	}
	lead, top := s.searched[0], &s.v.Suspects[0]
	if w, explain := lead.explainingWaits(s.epoch.in.Table); explain && w.Share >= explainedShare*top.Share {
		s.v.Wait, s.v.Function = w, lead.functionOf(&w, s.epoch.in.Table)
		return waitSentence(&w, s.v.Function, s.problem.Problem, s.epoch.in.Table)
	}
	for _, e := range s.problem.Explanations {
		isTarget := func(x *group.EdgeShare) bool { return x.Edge == e.Target }
		within := e.Target == 0 || slices.ContainsFunc(lead.edges, isTarget)
		if within && e.Effect >= explainedShare && e.PValue <= 0.05 {
			return fmt.Sprintf("%.0f %% of the variance goes with %s", 100*e.Effect, e.Variable)
		}
	}
	if top.Share >= explainedShare*lead.score && !isCall(s.epoch.in.Table, top.Op) && lead.neverWaits() {
		s.v.Computes = true
		return "it computes, or waits inside its own process: the kernel sees no wait"
	}
	return ""
}

// isCall reports whether op is a call. If so, its time may be spent elsewhere. table may be nil.
func isCall(table *trace.Table, op trace.Op) bool {
	if table == nil {
		return false
	}
	kind := table.Operation(op).Kind
	return kind == trace.Client || kind == trace.Producer
}

// variables returns the variables at and above the located suspect that may be switched on, nearest first and at most
// maxExplaining.
func (s *investigationStep) variables() []trace.Symbol {
	var list []trace.Symbol
	for k := s.tree.Find(s.v.Suspects[0].Context); k >= 0; k = s.tree.Nodes[k].Parent {
		for c := range s.tree.Children(k) {
			n := &s.tree.Nodes[c]
			if n.Kind == cct.VariablePoint && len(list) < maxExplaining &&
				s.excluded(n.Tracepoint) == "" && s.v.requested(n.Tracepoint) < 0 {
				list = append(list, n.Tracepoint)
			}
		}
	}
	return list
}
