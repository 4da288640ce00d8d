package search

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules of investigations.
const (
	SilencePeriod = 30 * time.Minute // a tracepoint that explained nothing stays off for the same problem

	maxInvestigations = 64   // active at a time
	maxKept           = 1024 // with those that ended
	graceEpochs       = 2    // calls without the problem before it is gone
	idleEpochs        = 6    // calls without anything new before an investigation gives up
	enough            = 300  // requests, beyond which more do not help
	refutedShare      = 0.1  // of the leading operation's: what cannot carry more is switched off
	liveShare         = 0.15 // of the best region's: what carries less is not searched
	keptShare         = 0.8  // of the operations' share that located places must keep
	leastShare        = 0.1  // of all that is wrong, that the first of located places must carry
	standOut          = 3    // places at most that are located together
	explainedShare    = 0.5
	maxExplaining     = 4 // variables switched on for a located place
	explainEpochs     = 3
	certain           = 3  // −ln of the chance that all of the requests that a place was judged by were spared
	verifyRequests    = 60 // most that the places below an inner one are judged by before it is located
	wantedRequests    = 24 // of the group, with a tracepoint on, an epoch
)

// Next decides what is on until the next call. It returns the state to pass in then, and a decision for every change of the plan
// or of an investigation, in the order of the problems. It reads nothing but its arguments, keeps nothing of them that it
// changes, and gives equal results for equal arguments; the order of edges and of evidence within a problem is irrelevant.
func Next(in Input) (State, []Decision) {
	n := newStep(in)
	for i := range in.Problems {
		n.investigate(&in.Problems[i])
	}
	n.endMissing()
	n.compile()
	return n.state, n.finish()
}

// step is the state of one call of Next.
type step struct {
	Input
	state     State
	old       *Plan
	decisions []Decision
	seen      map[analysis.Hash]bool // problems
	onset     map[analysis.Hash]detect.Onset
	forbidden map[trace.Symbol]bool
	broken    map[trace.Symbol]bool
	silent    map[Silence]bool // with Until 0
	strategy  string
	answer    Strategy
	costs     *costs
	leading   map[trace.Op]bool // operations that better-ranked problems' investigations are picking in
}

func newStep(in Input) *step {
	n := &step{
		Input: in, old: &in.State.Plan, seen: make(map[analysis.Hash]bool), onset: make(map[analysis.Hash]detect.Onset),
		forbidden: make(map[trace.Symbol]bool), broken: make(map[trace.Symbol]bool), silent: make(map[Silence]bool),
		leading: make(map[trace.Op]bool),
	}
	n.strategy, n.answer = StrategyNamed(in.Strategy)
	n.costs = newCosts(in.Trees, in.Rates)
	n.state.Investigations = slices.Clone(in.State.Investigations)
	for _, w := range in.State.Wishes {
		if w.Until == 0 || w.Until > in.Now {
			n.state.Wishes = append(n.state.Wishes, w)
			n.forbidden[w.Tracepoint] = n.forbidden[w.Tracepoint] || w.Kind == Forbid
		}
	}
	for _, s := range in.State.Silences {
		if s.Until > in.Now {
			n.state.Silences = append(n.state.Silences, s)
			n.silent[Silence{Problem: s.Problem, Tracepoint: s.Tracepoint}] = true
		}
	}
	for _, tp := range in.Unavailable {
		n.broken[tp] = true
	}
	return n
}

// investigate advances the investigation of p by one step, opening it where there is none.
func (n *step) investigate(p *detect.Problem) {
	if n.seen[p.ID] {
		return
	}
	n.seen[p.ID], n.onset[p.ID] = true, p.Onset
	v := n.state.Investigation(p.ID)
	if v == nil {
		if v = n.open(p); v == nil {
			return
		}
	}
	i := &inquiry{step: n, v: v, p: p, tree: n.Trees[p.RequestType]}
	if i.tree == nil {
		i.tree = new(cct.Tree)
	}
	i.run()
}

// open starts an investigation; it returns nil if there are too many.
func (n *step) open(p *detect.Problem) *Investigation {
	active := 0
	for i := range n.state.Investigations {
		if n.state.Investigations[i].Status.Active() {
			active++
		}
	}
	if active >= maxInvestigations || len(n.state.Investigations) >= maxKept {
		return nil
	}
	n.state.Investigations = append(n.state.Investigations, Investigation{
		Problem: p.ID, RequestType: p.RequestType, Group: p.Group, Entry: p.Entry, Opened: n.Now, Changed: n.Now, Strategy: n.strategy,
	})
	return &n.state.Investigations[len(n.state.Investigations)-1]
}

// endMissing ends the investigations of problems that closed, and forgets those that ended long ago.
func (n *step) endMissing() {
	kept := n.state.Investigations[:0]
	for _, v := range n.state.Investigations {
		if !n.seen[v.Problem] {
			v.Missed++
			if v.Missed >= graceEpochs && v.Status != Gone {
				n.decisions = append(n.decisions, n.gone(&v))
			}
			if v.Status == Gone && n.Now.Sub(v.Changed) > SilencePeriod {
				continue
			}
		}
		kept = append(kept, v)
	}
	n.state.Investigations = kept
}

func (n *step) gone(v *Investigation) Decision {
	d := Decision{At: n.Now, Investigation: v.Problem, Strategy: v.Strategy, From: v.Status, To: Gone, Reason: "the problem closed"}
	d.Suspects = slices.Clone(v.Suspects[:min(len(v.Suspects), maxSuspects)])
	for _, w := range v.Wants {
		d.Off = append(d.Off, Off{w.Tracepoint, WhyClosed})
	}
	v.Status, v.Changed, v.Wants, v.Reason = Gone, n.Now, nil, d.Reason
	return d
}
