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

// investigationStep advances one investigation in one call of [Next].
type investigationStep struct {
	epoch    *epochStep
	v        *Investigation
	problem  *Problem
	tree     *cct.Tree
	searched []*operationScope // operations, the leading one first
	rest     []*operationScope // operations that carry too little to be searched
	question Question
	live     []knownLocation // known locations whose regions may carry the problem
	rejected []Rejected
	decision Decision
}

// run merges the evidence, judges it, and switches tracepoints off and on.
func (s *investigationStep) run() {
	v := s.v
	v.Missed = 0
	v.Requested = slices.Clone(v.Requested)
	v.observe(s.problem.Problem, &s.epoch.in.State.Plan, s.epoch.excluded.unproven)
	s.searched, s.rest = scopesOf(s.problem.Problem, s.tree, s.epoch.in.Table)
	for _, o := range s.searched {
		o.sample(s.epoch.sampleOf(o, s.v.Opened), s.epoch.in.Table)
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
	if v.Status < Located {
		s.ask()
	}
	v.Epochs++
	s.end()
}

// rank sets the suspects of the investigation.
func (s *investigationStep) rank() {
	s.v.Suspects = suspectsOf(s.searched, s.rest, func(o *operationScope) []int { return o.open(s.excluded) })
}

// ranking returns the suspects with their scopes.
func (s *investigationStep) ranking() ranking { return ranking{s.searched, s.v.Suspects} }

// excluded returns why tp may not be switched on for the problem, or "" if it may.
func (s *investigationStep) excluded(tp trace.Symbol) string {
	return s.epoch.excluded.reason(s.v.Subject, tp)
}

// begin initializes the decision with the evidence for it.
func (s *investigationStep) begin() {
	p := s.problem
	s.decision = Decision{
		At:       s.epoch.in.Now,
		Subject:  s.v.Subject,
		Strategy: s.epoch.strategy.Name,
		From:     s.v.Status,
		Group:    GroupEvidence{p.Group, p.RequestType, p.Kind, p.Requests, p.Rate, finite(p.CoV)},
		Tree:     TreeEvidence{s.tree.Version, len(s.tree.Nodes), s.tree.Tracepoints},
		Overhead: overheadFor(s.v.Subject, s.epoch.in.Arms),
	}
	for _, o := range s.searched {
		s.decision.Matches = append(s.decision.Matches, o.matches...)
	}
	if s.v.Lead == 0 && len(s.searched) > 0 {
		s.v.Lead, s.v.Score = s.searched[0].edges[0].Context, s.searched[0].score
	}
}

// end adds the decision to the epoch's decisions if anything changed.
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

// leadChanged reports whether an operation other than the searched one now clearly leads the problem, or whether the
// investigation was gone. It returns false if no operation stands out.
func (s *investigationStep) leadChanged() bool {
	if len(s.searched) == 0 {
		return false
	}
	for _, e := range s.searched[0].edges {
		if e.Context == s.v.Lead {
			return s.v.Status == Gone
		}
	}
	return s.v.Status == Gone || s.searched[0].score > 1.5*scoreOf(s.problem.Problem, s.v.Lead)
}

// scoreOf returns the total score of the edges of p with context ctx.
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
	s.epoch.excluded.endCooldowns(s.v.Subject)
}

// search judges the evidence and switches tracepoints off and on, unless the search ends:
//
//  1. Regions that may carry the problem are found, and tracepoints with known shares are switched off.
//  2. Candidates are listed after that, so that they don't include tracepoints that have just started to cool down.
//  3. Unless a location stands out, the strategy picks candidates.
//  4. Otherwise, or if there are no candidates, the search waits for tracepoints with many missing records, because
//     they may carry the problem.
//  5. A location that stands out is verified, then located. If no location stands out, the best suspects are watched
//     until one does or the investigation gives up.
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
	case !closed && s.awaitsSample():
		s.setStatus(Investigating, "waiting for the stacks of slow requests")
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
// tracepoints that still need requests.
func (s *investigationStep) prepare() (waiting map[trace.Symbol]bool) {
	in := s.epoch.in
	regions, live := regionsOf(s.searched)
	waiting, s.live = s.pending(), live
	if s.switchOff(waiting, regions) { // tracepoints that cool down are no longer open
		s.rank()
	}
	s.question = Question{
		Regions: regions, Requests: finite(s.problem.Rate) * in.Epoch.Seconds(), Pairs: s.problem.Pairs,
		Seed: trace.Mix(in.Seed, trace.Mix(s.v.Subject.ID.Lo, uint64(s.v.Epochs))),
	}
	s.rejected = s.question.fill(live, s.searched, s.excluded)
	return waiting
}

// follows reports whether the operation that leads this investigation is already searched for a better-ranked problem
// of another request type or level. One cause often opens several problems, and its tracepoints give evidence to all of
// them. An investigation older than patience calls doesn't follow.
func (s *investigationStep) follows() bool {
	return s.epoch.leading[s.searched[0].op] && s.v.Epochs < patience
}

// waitsForTurn reports whether this search waits for the search of a changed problem that is ranked higher and whose
// requests run through the same services. One cause, such as a machine without a free CPU, often slows requests of many
// types. If we searched each type at the same time, we would enable most tracepoints. So another changed problem
// doesn't start, and the search of a steady problem pauses, because its requests show the change, too.
//
// An incident stands for many problems, so the search for its cause starts at once. In that call of Next, no other
// search starts; otherwise, the problems that the incident takes over would pass their turn to the next ones.
func (s *investigationStep) waitsForTurn() bool {
	if s.problem.Onset == detect.Changed && (s.v.Status != Opened || s.problem.Tree != nil) {
		return false
	}
	if s.epoch.opening {
		return true
	}
	return s.epoch.othersTurn(s.problem.Problem, s.problem.Onset != detect.Changed)
}

// othersTurn reports whether a changed problem that is ranked before p has its turn and has requests that run through
// the same services. If located is false, problems that are already located don't count.
func (s *epochStep) othersTurn(p *detect.Problem, located bool) bool {
	for service := range s.servicesOf(p) {
		if searching, has := s.changing[service]; searching || has && located {
			return true
		}
	}
	return false
}

// longestWait is the age, in calls, at which an investigation no longer waits for tracepoints.
const longestWait = 36

// awaits reports whether to wait for a tracepoint that was tried without a result because its records are missing, and
// can soon be tried again. The tracepoint may still carry the problem, unless it runs only below a location that
// doesn't. An investigation older than longestWait doesn't wait. An investigation with a clear leader doesn't wait for
// functions below the leader: they run so often that their agents drop records, and would drop them again.
func (s *investigationStep) awaits() bool {
	leads := s.leads()
	return s.v.Epochs < longestWait && s.returns(func(l *location) bool { return !leads || l.layer == cct.Kernel })
}

// returns reports whether counts accepts an unknown location that may carry the problem and whose tracepoint was tried,
// lacks records, and can soon be tried again.
func (s *investigationStep) returns(counts func(l *location) bool) bool {
	return slices.ContainsFunc(s.searched, func(o *operationScope) bool {
		return slices.ContainsFunc(o.locations, func(l location) bool {
			placed := l.anyRegion || slices.Contains(s.live, knownLocation{o, l.region})
			if l.known || !s.epoch.excluded.returning[l.tp] || !placed {
				return false
			}
			_, tried := slices.BinarySearch(s.v.Tried, l.tp)
			return tried && counts(&l)
		})
	})
}

// leads reports whether the first suspect carries at least half of the leading operation's share, clearly exceeds every
// other suspect, and has no candidate below it.
func (s *investigationStep) leads() bool {
	top := &s.v.Suspects[0]
	return top.Low > runnerUp(s.v.Suspects) && top.Share >= s.searched[0].score/2 && top.Open == 0
}

// runnerUp returns the share of the second suspect, or 0 if there is only one.
func runnerUp(suspects []Suspect) float64 {
	if len(suspects) < 2 {
		return 0
	}
	return suspects[1].Share
}

// doubtful reports whether the leading operation may not have become slower at all. This happens in the first epochs of
// a small change, when another operation often leads because of noise. The doubt ends after 2·patience calls.
func (s *investigationStep) doubtful() bool {
	return doubtfulExcess(s.problem.Problem, s.searched[0].edges) && s.v.Epochs < 2*patience
}
