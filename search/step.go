package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// idleEpochs is the number of consecutive calls without progress after which an investigation gives up.
const idleEpochs = 6

// investigationStep is one step of one investigation.
type investigationStep struct {
	epoch    *epochStep
	v        *Investigation
	problem  *detect.Problem
	tree     *cct.Tree
	searched []*operationScope // operations, the leading one first
	rest     []*operationScope // operations that carry too little to be searched
	question Question
	live     []knownLocation // whose regions may carry the problem
	rejected []Rejected
	decision Decision
}

// run merges the evidence, judges it, and switches tracepoints off and on.
func (s *investigationStep) run() {
	v := s.v
	v.Missed = 0
	v.Requested = slices.Clone(v.Requested)
	v.observe(s.problem, &s.epoch.in.State.Plan, s.epoch.excluded.unproven)
	s.searched, s.rest = scopesOf(s.problem, s.tree, s.epoch.in.Table)
	for _, o := range s.searched {
		o.weigh(v.Evidence, v.settled)
		o.creditComputing(s.epoch.in.Table)
	}
	s.rank()
	s.begin()
	if v.Status >= Located && s.leadChanged() {
		s.reopen()
	}
	switch {
	case v.Status == Located:
		s.explain()
	case v.Status < Located:
		s.search()
	}
	v.Epochs++
	s.end()
}

// rank sets the suspects.
func (s *investigationStep) rank() {
	s.v.Suspects = suspectsOf(s.searched, s.rest, func(o *operationScope) []int { return o.open(s.excluded) })
}

// ranking returns the suspects with their scopes.
func (s *investigationStep) ranking() ranking { return ranking{s.searched, s.v.Suspects} }

// excluded returns the reason why tp may not be switched on for the problem; empty if it may.
func (s *investigationStep) excluded(tp trace.Symbol) string {
	return s.epoch.excluded.reason(s.v.Problem, tp)
}

// begin sets the evidence of the decision.
func (s *investigationStep) begin() {
	p := s.problem
	s.decision = Decision{
		At: s.epoch.in.Now, Investigation: s.v.Problem, Strategy: s.epoch.strategy.Name, From: s.v.Status,
		Group: GroupEvidence{p.Group, p.RequestType, p.Kind, p.Requests, p.Rate, finite(p.CoV)},
		Tree:  TreeEvidence{s.tree.Version, len(s.tree.Nodes), s.tree.Tracepoints}, Overhead: overheadFor(s.v.Problem, s.epoch.in.Arms),
	}
	for _, o := range s.searched {
		s.decision.Matches = append(s.decision.Matches, o.matches...)
	}
	if s.v.Lead == 0 && len(s.searched) > 0 {
		s.v.Lead, s.v.Score = s.searched[0].edges[0].Context, s.searched[0].score
	}
}

// end adds the decision to those of the epoch if anything changed.
func (s *investigationStep) end() {
	d := &s.decision
	d.To, d.Reason = s.v.Status, cmp.Or(d.Reason, s.v.Reason)
	if d.From == d.To && len(d.Picks) == 0 && len(d.Off) == 0 {
		return
	}
	d.Suspects = slices.Clone(s.v.Suspects[:min(len(s.v.Suspects), maxSuspects)])
	d.Rejected = s.rejected[:min(len(s.rejected), maxRejected)]
	s.epoch.decisions = append(s.epoch.decisions, *d)
}

func (s *investigationStep) setStatus(status Status, reason string) {
	if s.v.Status != status {
		s.v.Status, s.v.Changed = status, s.epoch.in.Now
		if status < Explained {
			s.v.Wait, s.v.Function, s.v.Computes = Suspect{}, 0, false
		}
		if status == Located {
			s.v.Place = s.v.Suspects[0]
			s.decision.From = min(s.decision.From, Investigating) // another place, if it reopened in this step
		}
	}
	s.v.Reason = reason
}

// leadChanged reports whether another operation than the one searched clearly leads the problem, or the problem is
// back.
func (s *investigationStep) leadChanged() bool {
	if len(s.searched) == 0 {
		return false
	}
	for _, e := range s.searched[0].edges {
		if e.Context == s.v.Lead {
			return s.v.Status == Gone
		}
	}
	return s.v.Status == Gone || s.searched[0].score > 1.5*scoreOf(s.problem, s.v.Lead)
}

// scoreOf returns the score of the edges of p with the given context.
func scoreOf(p *detect.Problem, ctx trace.Context) float64 {
	score := 0.0
	for k := range p.Edges {
		if p.Edges[k].Context == ctx {
			score += p.Edges[k].Score
		}
	}
	return score
}

// reopen starts the investigation over. Cooldowns end because the evidence changed.
func (s *investigationStep) reopen() {
	s.setStatus(Opened, "the evidence changed")
	s.v.Lead, s.v.Score, s.v.Idle = s.searched[0].edges[0].Context, s.searched[0].score, 0
	s.epoch.excluded.endCooldowns(s.v.Problem)
}

// search judges the evidence and switches tracepoints off and on, unless the search ends:
//
//  1. Regions that may carry the problem are found, and tracepoints with known shares switched off.
//  2. Candidates are listed after that, so that none has just begun to cool down.
//  3. Unless a location stands out, the strategy picks candidates.
//  4. Otherwise, and without candidates, it waits for tracepoints that miss many records: they may carry the problem.
//  5. A location that stands out is verified, then located. Without one the best suspects are watched until one stands
//     out or the investigation gives up.
func (s *investigationStep) search() {
	if len(s.searched) == 0 {
		s.setStatus(s.v.Status, "waiting until an operation stands out again")
		return
	}
	if !slices.ContainsFunc(s.searched, func(o *operationScope) bool { return len(o.roots) > 0 }) {
		s.decision.Missing = s.ranking().missing()
		s.settle(Exhausted, "no context in the tree resembles the leading edge: explore its operation")
		return
	}
	waiting := s.prepare()
	closed := s.ranking().outstanding(true) > 0
	switch {
	case s.v.BudgetStarved > idleEpochs:
		s.conclude(s.ranking().outstanding(false) > 0, "no remaining candidate fits the budget")
	case len(waiting) > 0:
		s.setStatus(Investigating, "waiting for requests")
	case !closed && s.follows():
		s.setStatus(s.v.Status, "a greater problem in the same operation is searched first")
	case !closed && s.waitsForTurn():
		s.setStatus(s.v.Status, "a changed problem, which may have the same cause, is searched first")
	case !closed && s.pick():
		s.v.Idle = 0
		s.setStatus(Investigating, "searching the largest unexplained part")
	case s.awaits():
		s.setStatus(Investigating, "waiting for tracepoints of which many records are missing")
	case closed && s.doubtful():
		s.setStatus(Investigating, "waiting for certainty that the leading operation became slower")
	case closed && s.verify():
		s.setStatus(Investigating, "verifying the location")
	case closed:
		s.conclude(true, "")
	default:
		s.exhaust()
	}
	if s.v.Status == Investigating {
		s.epoch.leading[s.searched[0].op] = true
	}
}

// prepare makes the question for the strategy and switches off tracepoints that need not stay on. It returns the
// tracepoints that wait for requests.
func (s *investigationStep) prepare() (waiting map[trace.Symbol]bool) {
	in := s.epoch.in
	regions, live := regionsOf(s.searched)
	waiting, s.live = s.pending(), live
	if s.switchOff(waiting, regions) { // tracepoints that cool down are not open any more
		s.rank()
	}
	s.question = Question{
		Regions: regions, Requests: finite(s.problem.Rate) * in.Epoch.Seconds(), Pairs: in.Pairs[s.problem.ID],
		Seed: trace.Mix(in.Seed, trace.Mix(s.v.Problem.Lo, uint64(s.v.Epochs))),
	}
	s.rejected = s.question.fill(live, s.searched, s.excluded)
	return waiting
}

// follows reports whether an investigation of a better-ranked problem, of another request type or level, searches the
// operation that leads this one. One cause often opens several problems, and its tracepoints give evidence to all of
// them. An investigation follows for patience calls at most.
func (s *investigationStep) follows() bool {
	return s.epoch.leading[s.searched[0].op] && s.v.Epochs < patience
}

// waitsForTurn reports whether a changed problem, ranked before this one, is searched first: one whose requests run
// through the same services. One cause often slows requests of many types, as a machine without a free CPU does, and a
// search for each at the same time would enable most tracepoints. So another changed problem does not begin, and the
// search of a steady one pauses, whose requests show the change, too. The cause of an incident is searched at once: it
// stands for many problems. In the first call of its search no requests have run through it, so that all others wait;
// the problems that it takes would otherwise leave their turn to the next.
func (s *investigationStep) waitsForTurn() bool {
	if s.problem.Onset == detect.Changed && (s.v.Status != Opened || s.epoch.in.Joined[s.v.Problem] != nil) {
		return false
	}
	if s.epoch.opening {
		return true
	}
	for service := range s.epoch.servicesOf(s.problem) {
		if s.epoch.changing[service] {
			return true
		}
	}
	return false
}

// longestWait is the number of calls after which an investigation does not wait for tracepoints any more.
const longestWait = 36

// awaits reports whether a tracepoint that the investigation has tried showed nothing because its records are missing,
// and can soon be tried again: until then it may carry the problem, unless it runs only below a location that does not.
// An investigation that is old does not wait. Nor does one with a clear leader wait for functions below it, which run
// so often that their agents drop records, and would drop them again.
func (s *investigationStep) awaits() bool {
	leads := s.leads()
	return s.v.Epochs < longestWait && s.returns(func(l *location) bool { return !leads || l.layer == cct.Kernel })
}

// returns reports whether the search may go on at a location that counts: one whose records are missing and that can
// soon be tried again.
func (s *investigationStep) returns(counts func(l *location) bool) bool {
	return slices.ContainsFunc(s.searched, func(o *operationScope) bool {
		return slices.ContainsFunc(o.locations, func(l location) bool {
			if l.known || !s.epoch.excluded.returning[l.tp] || !l.anyRegion && !slices.Contains(s.live, knownLocation{o, l.region}) {
				return false
			}
			_, tried := slices.BinarySearch(s.v.Tried, l.tp)
			return tried && counts(&l)
		})
	})
}

// leads reports whether the first suspect carries most of the leading operation, surely more than any other, and no
// candidate below it is left.
func (s *investigationStep) leads() bool {
	top := &s.v.Suspects[0]
	return top.Low > s.runnerUp() && top.Share >= s.searched[0].score/2 && top.Open == 0
}

// runnerUp returns the share of the second suspect; 0 if there is none.
func (s *investigationStep) runnerUp() float64 {
	if len(s.v.Suspects) < 2 {
		return 0
	}
	return s.v.Suspects[1].Share
}

// doubtful reports whether the leading operation may be no slower than before, as in the first epochs of a small
// change, when noise of another operation often leads. The doubt ends after some calls.
func (s *investigationStep) doubtful() bool {
	return doubtfulExcess(s.problem, s.searched[0].edges) && s.v.Epochs < 2*patience
}
