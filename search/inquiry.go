package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// inquiry is one step of one investigation.
type inquiry struct {
	*step
	v        *Investigation
	p        *detect.Problem
	tree     *cct.Tree
	searched []*area
	rest     []*area
	question Question
	rejected []Rejected
	d        Decision
}

// run takes over the evidence, judges it, and decides what to switch off and on.
func (i *inquiry) run() {
	v := i.v
	v.Missed = 0
	v.Wants = slices.Clone(v.Wants)
	v.observe(i.p, i.old)
	i.searched, i.rest = areasOf(i.p, i.tree, i.Table)
	for _, a := range i.searched {
		a.weigh(v.Evidence, i.settled)
	}
	v.Suspects = suspects(i.searched, i.rest, i.opens)
	i.begin()
	if v.Status >= Located && i.changed() {
		i.reopen()
	}
	switch {
	case v.Status == Located:
		i.explain()
	case v.Status < Located:
		i.search()
	}
	v.Epochs++
	i.end()
}

// begin makes the decision's evidence.
func (i *inquiry) begin() {
	i.d = Decision{
		At: i.Now, Investigation: i.v.Problem, Strategy: i.strategy, From: i.v.Status,
		Group: GroupEvidence{i.p.Group, i.p.RequestType, i.p.Kind, i.p.Requests, i.p.Rate, finite(i.p.CoV)},
		Tree:  TreeEvidence{i.tree.Version, len(i.tree.Nodes), i.tree.Tracepoints}, Overhead: i.overhead(i.v.Problem),
	}
	for _, a := range i.searched {
		i.d.Matches = append(i.d.Matches, a.matches...)
	}
	if i.v.Lead == 0 && len(i.searched) > 0 {
		i.v.Lead, i.v.Score = i.searched[0].edges[0].Context, i.searched[0].score
	}
}

// end files the decision if anything changed.
func (i *inquiry) end() {
	i.d.To, i.d.Reason = i.v.Status, cmp.Or(i.d.Reason, i.v.Reason)
	if i.d.From == i.d.To && len(i.d.Picks) == 0 && len(i.d.Off) == 0 {
		return
	}
	i.d.Suspects = slices.Clone(i.v.Suspects[:min(len(i.v.Suspects), maxSuspects)])
	i.d.Rejected = i.rejected[:min(len(i.rejected), maxRejected)]
	i.decisions = append(i.decisions, i.d)
}

func (i *inquiry) set(s Status, reason string) {
	if i.v.Status != s {
		i.v.Status, i.v.Changed = s, i.Now
	}
	i.v.Reason = reason
}

// changed reports whether a finished investigation no longer fits: another place leads clearly.
func (i *inquiry) changed() bool {
	if len(i.searched) == 0 {
		return false
	}
	for _, e := range i.searched[0].edges {
		if e.Context == i.v.Lead {
			return i.v.Status == Gone
		}
	}
	return i.v.Status == Gone || i.searched[0].score > 1.5*i.scoreOf(i.v.Lead)
}

func (i *inquiry) scoreOf(ctx trace.Context) float64 {
	score := 0.0
	for k := range i.p.Edges {
		if i.p.Edges[k].Context == ctx {
			score += i.p.Edges[k].Score
		}
	}
	return score
}

// reopen starts over, without silence: the evidence changed.
func (i *inquiry) reopen() {
	i.set(Investigating, "the evidence changed")
	i.v.Lead, i.v.Score, i.v.Idle = i.searched[0].edges[0].Context, i.searched[0].score, 0
	i.state.Silences = slices.DeleteFunc(i.state.Silences, func(s Silence) bool { return s.Problem == i.v.Problem })
	for s := range i.silent {
		if s.Problem == i.v.Problem {
			delete(i.silent, s)
		}
	}
}

// search judges and, unless that ends the search, switches off and on.
func (i *inquiry) search() {
	if len(i.searched) == 0 {
		i.set(i.v.Status, "no edge carries the problem")
		return
	}
	if !slices.ContainsFunc(i.searched, func(a *area) bool { return len(a.roots) > 0 }) {
		i.d.Missing = i.missing()
		i.settle(Exhausted, "no context in the tree is near the one that carries most: explore that operation")
		return
	}
	i.regions()
	waiting := i.pending()
	i.switchOff(waiting)
	switch {
	case i.v.Starved > idleEpochs:
		i.conclude(i.standsOut(false), "nothing that is left to try fits the budget")
	case len(waiting) > 0:
		i.set(Investigating, "waiting for requests")
	case i.standsOut(true) && i.doubtful():
		i.set(Investigating, "waiting until it is certain that what carries most is slower than it was")
	case i.standsOut(true):
		if i.verify() {
			i.set(Investigating, "making sure of the place")
		} else {
			i.conclude(true, "")
		}
	case i.follows():
		i.set(Investigating, "a greater problem is searched in the same operation")
	case i.pick():
		i.v.Idle = 0
		i.set(Investigating, "searching what carries most")
	default:
		i.exhaust()
	}
	if i.v.Status == Investigating {
		i.leading[i.searched[0].op] = true
	}
}

// follows reports whether a better-ranked problem, of another request type or level, is searched in the operation that leads this one:
// one cause often opens several problems, and what is on shows something to all of them. It waits for patience decisions only.
func (i *inquiry) follows() bool {
	return i.leading[i.searched[0].op] && i.v.Epochs < patience
}

// settled reports whether what is known of tp will not get better by waiting.
func (i *inquiry) settled(tp trace.Symbol) bool {
	at := i.v.want(tp)
	return at < 0 || i.v.Epochs-i.v.Wants[at].Epoch > patience
}

// pending returns what is on and has not been seen by enough requests. Where those that were asked for turned out too few, it
// asks for four times as many.
func (i *inquiry) pending() map[trace.Symbol]bool {
	pending := make(map[trace.Symbol]bool)
	requests := requestsOf(i.v.Evidence)
	for k := range i.v.Wants {
		w := &i.v.Wants[k]
		wide := slices.ContainsFunc(i.searched, func(a *area) bool { return slices.Contains(a.wide, w.Tracepoint) })
		short := requests[w.Tracepoint] < max(minRequests, w.Need) && !i.settled(w.Tracepoint)
		if wide || short && i.v.Epochs > w.Epoch+1 {
			w.Arms = armsFor(4 * shareOf(w.Arms))
		}
		if wide || short {
			pending[w.Tracepoint] = true
		}
	}
	return pending
}

// requests returns how many requests tp was judged by.
func (v *Investigation) requests(tp trace.Symbol) uint64 { return requestsOf(v.Evidence)[tp] }
