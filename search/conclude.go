package search

import (
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// conclude ends the search: located if the best place stands out, unless that is a whole operation that no tracepoint divides,
// of which nothing was found out, or carries next to nothing. Else it is exhausted, for the given reason.
func (i *inquiry) conclude(located bool, reason string) {
	top := &i.v.Suspects[0]
	switch {
	case located && top.Share < leastShare:
		reason = fmt.Sprintf("what is wrong is spread over many places; the first carries %.1f %%", 100*top.Share)
	case located && !i.undivided():
		i.settle(Located, i.describe())
		return
	case located:
		reason = "no tracepoint divides the operation that carries most"
	}
	i.d.Missing = i.missing()
	i.settle(Exhausted, reason)
}

// undivided reports whether the best place is an operation in which nothing was looked at: there are no tracepoints, or none
// that may be switched on.
func (i *inquiry) undivided() bool {
	top := &i.v.Suspects[0]
	for _, a := range i.searched {
		if top.Tracepoint == 0 && a.op == top.Op {
			return !slices.ContainsFunc(a.classes[1:], func(c class) bool { return c.known })
		}
	}
	return top.Tracepoint == 0
}

func (i *inquiry) describe() string {
	top := &i.v.Suspects[0]
	if top.Open > 0 {
		return "one place carries " + part(top.Share) + " of what is wrong, and nothing below it fits the budget"
	}
	return "one place carries " + part(top.Share) + " of what is wrong, and nothing below it is left to try"
}

// part writes a share, which noise may estimate as more than all.
func part(share float64) string {
	if share >= 0.995 {
		return "all"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// exhaust handles the end of candidates: what is on is watched by more requests until one place stands out or nothing more
// is to be learned.
func (i *inquiry) exhaust() {
	v := i.v
	v.Idle++
	top := &v.Suspects[0]
	next := 0.0
	if len(v.Suspects) > 1 {
		next = v.Suspects[1].Share
	}
	over := v.Idle > idleEpochs || top.Requests >= enough || top.Tracepoint == 0 || len(i.rejectedFor(WhyBudget)) > 0
	switch {
	case top.Low > next && top.Share >= i.searched[0].score/2 && top.Open == 0:
		i.conclude(true, "")
	case over:
		i.conclude(top.Share > 1.5*next && top.Open == 0, "no candidates are left, and no place stands out")
	default:
		i.set(Investigating, "no candidates are left; watching the best")
		i.watch()
	}
}

func (i *inquiry) rejectedFor(reason string) []Rejected {
	var list []Rejected
	for _, r := range i.rejected {
		if r.Reason == reason {
			list = append(list, r)
		}
	}
	return list
}

// missing returns the operations that carry something themselves that no tracepoint divides.
func (i *inquiry) missing() []trace.Op {
	var ops []trace.Op
	for _, s := range i.v.Suspects[:min(len(i.v.Suspects), standOut)] {
		if s.Op != 0 && s.Share > 0 {
			ops = append(ops, s.Op)
		}
	}
	return ops
}

// watch switches the best suspects on for more requests.
func (i *inquiry) watch() {
	for k := range i.v.Suspects[:min(len(i.v.Suspects), 2)] {
		s := &i.v.Suspects[k]
		if s.Tracepoint == 0 || i.refuses(s.Tracepoint) != "" {
			continue
		}
		at := i.v.want(s.Tracepoint)
		if at < 0 {
			i.d.Picks = append(i.d.Picks, Pick{Tracepoint: s.Tracepoint, Op: s.Op, Context: s.Context, Score: s.Share, Whole: true, Arms: allArms, Reason: "to tell the best places apart"})
		} else {
			i.v.Wants[at].Arms = allArms
		}
	}
	i.adopt()
}

// settle ends the search and switches off what it had on.
func (i *inquiry) settle(s Status, reason string) {
	i.set(s, reason)
	for _, w := range i.v.Wants {
		i.d.Off = append(i.d.Off, Off{w.Tracepoint, WhyClosed})
	}
	i.v.Wants, i.v.Idle = nil, 0
}

// explain looks for what explains a located place: its layer, or a variable.
func (i *inquiry) explain() {
	v := i.v
	if why := i.explanation(); why != "" {
		i.settle(Explained, why)
		return
	}
	if v.Idle++; v.Idle > explainEpochs {
		if len(v.Wants) > 0 {
			i.settle(Located, v.Reason)
		}
		v.Idle = explainEpochs + 1
		return
	}
	if v.Idle > 1 {
		return
	}
	for _, tp := range i.variables() {
		i.d.Picks = append(i.d.Picks, Pick{Tracepoint: tp, Context: v.Suspects[0].Context, Score: v.Suspects[0].Share, Arms: allArms, Whole: true, Reason: "its values may explain the place"})
	}
	i.adopt()
}

// explanation says what accounts for at least half of what the leading operation carries: the wait class that was located, or a
// variable that explains the durations or an edge of the operation. Empty: nothing does.
func (i *inquiry) explanation() string {
	if len(i.searched) == 0 {
		return ""
	}
	lead, top := i.searched[0], &i.v.Suspects[0]
	if top.Share >= explainedShare*lead.score && slices.ContainsFunc(lead.classes, func(c class) bool {
		return c.tp != 0 && c.tp == top.Tracepoint && c.layer == cct.Kernel
	}) {
		return fmt.Sprintf("a kind of waiting accounts for %.0f %%", 100*top.Share)
	}
	for _, e := range i.p.Explanations {
		within := e.Target == 0 || slices.ContainsFunc(lead.edges, func(x *group.EdgeShare) bool { return x.Edge == e.Target })
		if within && e.Effect >= explainedShare && e.PValue <= 0.05 {
			return fmt.Sprintf("%s accounts for %.0f %%", e.Variable, 100*e.Effect)
		}
	}
	return ""
}

// variables returns the captures at the located place and above it that are off, nearest first.
func (i *inquiry) variables() []trace.Symbol {
	var list []trace.Symbol
	for k := i.tree.Find(i.v.Suspects[0].Context); k >= 0; k = i.tree.Nodes[k].Parent {
		for c := range i.tree.Children(k) {
			n := &i.tree.Nodes[c]
			if n.Kind == cct.VariablePoint && len(list) < maxExplaining && i.refuses(n.Tracepoint) == "" && i.v.want(n.Tracepoint) < 0 {
				list = append(list, n.Tracepoint)
			}
		}
	}
	return list
}
