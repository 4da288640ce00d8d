package search

import (
	"cmp"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on investigations.
const (
	maxSteady         = 2    // maximum number of chronic problems searched at a time
	longestTurn       = 16   // maximum number of epochs for which a changed problem is searched ahead of others
	maxInvestigations = 64   // maximum number of active investigations
	maxKept           = 1024 // maximum number of investigations, including ended ones
	graceEpochs       = 2    // consecutive calls without the problem after which its investigation is gone
)

// Next decides which tracepoints are on until the next call. It returns the state to pass to that call, and a decision
// for every change of the plan or of an investigation, in the order of the problems. Next reads nothing but its
// arguments, does not modify them, and returns equal results for equal arguments. The order of edges and of evidence
// within a problem is irrelevant.
func Next(in Input) (State, []Decision) {
	s := newEpochStep(&in)
	for i := range in.Problems {
		s.investigate(&in.Problems[i])
	}
	s.endMissing()
	s.compile()
	s.finish()
	return s.state, s.decisions
}

// epochStep holds the state of one call of [Next].
type epochStep struct {
	in        *Input
	strategy  Strategy
	costs     *costs
	excluded  exclusions
	state     State // to be returned
	decisions []Decision
	onset     map[Subject]detect.Onset // onsets of the problems seen in this call
	leading   map[trace.Op]bool        // operations that better-ranked investigations have picked tracepoints for
	steady    int                      // chronic problems that are being searched
	// services that the requests of better-ranked changed problems with a turn run through; true while one of these
	// problems is being searched, false if all are located
	changing map[trace.Symbol]bool
	opening  bool                  // the search of an incident starts in this call
	sampled  map[trace.Symbol]bool // services whose agents have sampled stacks
}

func newEpochStep(in *Input) *epochStep {
	s := &epochStep{
		in: in, strategy: in.Strategy, costs: newCosts(in.Trees, in.Rates), excluded: newExclusions(in),
		onset: make(map[Subject]detect.Onset), leading: make(map[trace.Op]bool),
		changing: make(map[trace.Symbol]bool), sampled: make(map[trace.Symbol]bool),
	}
	for op := range in.Samples {
		s.sampled[s.serviceOf(op)] = true
	}
	if s.strategy.Pick == nil {
		s.strategy = defaultStrategy()
	}
	s.state.Investigations = slices.Clone(in.State.Investigations)
	s.countSteady()
	for _, o := range in.State.Overrides {
		if o.holds(in.Now) {
			s.state.Overrides = append(s.state.Overrides, o)
		}
	}
	for _, x := range in.State.Steered {
		if x.Until > in.Now {
			s.state.Steered = append(s.state.Steered, x)
		}
	}
	return s
}

// holds reports whether o is still in force at now.
func (o *Override) holds(now trace.Nanos) bool { return o.Until == 0 || o.Until > now }

// investigate advances the investigation of p by one step. If there is room, it opens a new investigation or resumes
// one that is gone.
func (s *epochStep) investigate(p *Problem) {
	if _, seen := s.onset[p.Subject]; seen {
		return
	}
	s.onset[p.Subject] = p.Onset
	if s.ended(p) {
		return
	}
	wanted := s.restart(p)
	v := s.state.Investigation(p.Subject)
	begun := v == nil || v.Status == Gone
	if begun && (!wanted && !s.inTurn(p) || !s.makeRoom(p)) {
		return
	}
	if v == nil {
		if v = s.open(p); v == nil {
			return
		}
	}
	i := &investigationStep{epoch: s, v: v, problem: p, tree: s.treeOf(p)}
	i.run()
	s.opening = s.opening || begun && p.Tree != nil
	if begun && p.Onset == detect.Chronic && v.Status < Located {
		s.steady++
	}
	if p.Onset == detect.Changed && s.hasTurn(v) {
		for service := range s.servicesOf(p.Problem) {
			s.changing[service] = s.changing[service] || v.Status == Investigating
		}
	}
}

// hasTurn reports whether v, which must investigate a changed problem, is searched before others. After longestTurn
// epochs without a change of its status, for example because requests are rare, v no longer blocks the others. Steady
// problems wait equally long after v has located a cause, because it may be their cause, too, and its incident is about
// to open.
func (s *epochStep) hasTurn(v *Investigation) bool {
	return (v.Status == Investigating || v.Answer() != 0) && s.in.Now.Sub(v.Changed) < longestTurn*s.in.Epoch
}

// servicesOf returns the services that the requests of p run through. They may repeat.
func (s *epochStep) servicesOf(p *detect.Problem) iter.Seq[trace.Symbol] {
	return func(yield func(trace.Symbol) bool) {
		for i := range p.Edges {
			service := trace.Symbol(0)
			if s.in.Table != nil {
				service = s.in.Table.Operation(s.in.Table.Context(p.Edges[i].Context).Op).Service
			}
			if !yield(service) {
				return
			}
		}
	}
}

// treeOf returns the tree of p. The tree is empty if the input has no tree for p.
func (s *epochStep) treeOf(p *Problem) *cct.Tree {
	if p.Tree != nil {
		return p.Tree
	}
	if t := s.in.Trees[p.RequestType]; t != nil {
		return t
	}
	return new(cct.Tree)
}

// inTurn reports whether the search for the cause of p may start now. Steady problems are searched a few at a time, the
// worst first, because they aren't urgent. Most groups of many applications vary, and searching all of them at once
// would enable most tracepoints and cost more than the answers are worth.
func (s *epochStep) inTurn(p *Problem) bool {
	return p.Onset != detect.Chronic || s.steady < maxSteady
}

// countSteady counts the chronic problems that are being searched.
func (s *epochStep) countSteady() {
	chronic := make(map[Subject]bool)
	for i := range s.in.Problems {
		if p := &s.in.Problems[i]; p.Onset == detect.Chronic {
			chronic[p.Subject] = true
		}
	}
	for i := range s.state.Investigations {
		if v := &s.state.Investigations[i]; v.Status < Located && chronic[v.Subject] {
			s.steady++
		}
	}
}

// makeRoom reports whether an investigation of p can become active. If p is a changed problem, or a person wants it
// searched, makeRoom may end the lowest-ranked active investigation of a chronic problem.
func (s *epochStep) makeRoom(p *Problem) bool {
	active := 0
	for i := range s.state.Investigations {
		if s.state.Investigations[i].Status.Active() {
			active++
		}
	}
	if active < maxInvestigations {
		return true
	}
	if !s.first(p) {
		return false
	}
	for i := range slices.Backward(s.in.Problems) {
		chronic := &s.in.Problems[i]
		v := s.state.Investigation(chronic.Subject)
		if !s.first(chronic) && v != nil && v.Status.Active() {
			s.decisions = append(s.decisions, s.end(v, "a more urgent problem needs its place"))
			return true
		}
	}
	return false
}

// open starts an investigation of p. It returns nil if maxKept investigations are kept already.
func (s *epochStep) open(p *Problem) *Investigation {
	if len(s.state.Investigations) >= maxKept {
		return nil
	}
	s.state.Investigations = append(s.state.Investigations, s.begin(p))
	return &s.state.Investigations[len(s.state.Investigations)-1]
}

// endMissing ends the investigations of problems that have closed or whose incident is searched instead, and deletes
// investigations that ended more than [CooldownPeriod] ago.
func (s *epochStep) endMissing() {
	kept := s.state.Investigations[:0]
	for _, v := range s.state.Investigations {
		if _, seen := s.onset[v.Subject]; !seen {
			v.Missed++
			switch {
			case v.Status == Gone:
			case s.in.Taken[v.Subject]:
				s.decisions = append(s.decisions, s.end(&v, "its incident is investigated instead"))
			case v.Missed >= graceEpochs:
				s.decisions = append(s.decisions, s.end(&v, whyMissing(v.Subject)))
			}
			if v.Status == Gone && s.in.Now.Sub(v.Changed) > CooldownPeriod {
				continue
			}
		}
		kept = append(kept, v)
	}
	s.state.Investigations = kept
}

// whyMissing returns why a subject that nobody searches instead is no longer to be searched.
func whyMissing(s Subject) string {
	if _, ofIncident := s.Incident(); ofIncident {
		return "the incident has closed, or its first suspect adds no time to requests"
	}
	return "its problem has closed"
}

// end ends v for the given reason, and returns the decision.
func (s *epochStep) end(v *Investigation, reason string) Decision {
	d := Decision{At: s.in.Now, Subject: v.Subject, Strategy: v.Strategy, From: v.Status, To: Gone, Reason: reason}
	d.Suspects = slices.Clone(v.Suspects[:min(len(v.Suspects), maxSuspects)])
	for _, r := range v.Requested {
		d.Off = append(d.Off, Off{r.Tracepoint, WhyClosed})
	}
	v.Status, v.Changed, v.Requested, v.Reason = Gone, s.in.Now, nil, d.Reason
	return d
}

// finish moves the cooldowns into the state, and drops requests that the plan doesn't satisfy.
func (s *epochStep) finish() {
	slices.Sort(s.state.Sampling)
	s.state.Cooldowns = s.excluded.cooldowns
	sorting.Slice(s.state.Cooldowns, func(a, b Cooldown) int {
		return cmp.Or(a.Subject.Compare(b.Subject), cmp.Compare(a.Tracepoint, b.Tracepoint))
	})
	for i := range s.state.Investigations {
		v := &s.state.Investigations[i]
		v.Requested = slices.DeleteFunc(slices.Clone(v.Requested), func(r TracepointRequest) bool {
			return !s.state.Plan.has(r.Tracepoint)
		})
		if len(v.Requested) > 0 {
			v.BudgetStarved = 0
		}
	}
}
