package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Place presents an edge of a critical path without its statistics.
type Place struct {
	Edge      trace.Edge `json:"-"`
	Name      string     `json:"name"`    // short text
	Context   []string   `json:"context"` // root first, the edge's own operation last; empty for the remainder
	Service   string     `json:"service"`
	Operation string     `json:"operation"` // [OtherPlaces] for the remainder
	Kind      string     `json:"kind"`
	Before    string     `json:"before,omitempty"` // the critical child before the edge; for groups
	After     string     `json:"after,omitempty"`
	Target    *Target    `json:"target,omitempty"` // operation that the place calls, if known
}

// Target presents the operation that another one calls. The time of the call is spent on the wire to the target, in its
// queue or, if the target is external, in the target.
type Target struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	External  bool   `json:"external"` // emits no spans, so that the attributes of its caller name it
}

// Edge presents an edge of the critical path of a group or request type. Means are per request; requests without the
// edge count as 0.
type Edge struct {
	Place

	MeanNS        Number `json:"mean_ns"`
	ShareMean     Number `json:"share_mean"`
	ShareVariance Number `json:"share_variance"`
	ShareLow      Number `json:"share_low"` // 95 % interval of ShareVariance
	ShareHigh     Number `json:"share_high"`
	TailLiftNS    Number `json:"tail_lift_ns"`
}

// NewPlace presents e without its statistics.
func NewPlace(n *Names, e *group.EdgeShare) Place {
	p := Place{Edge: e.Edge, Name: n.Edge(e), Context: []string{}, Operation: OtherPlaces}
	if e.Edge == 0 {
		return p
	}
	op := n.Last(e.Context)
	p.Context, p.Before, p.After = n.Context(e.Context), n.Op(e.Before), n.Op(e.After)
	p.Service, p.Operation, p.Kind = n.Service(op), n.OpName(op), n.Kind(op)
	p.Target = newTarget(n, op)
	return p
}

// PlaceOf presents an edge by its identity.
func PlaceOf(n *Names, edge trace.Edge) Place {
	return NewPlace(n, shareless(n, edge))
}

// shareless returns an edge without its share.
func shareless(n *Names, edge trace.Edge) *group.EdgeShare {
	info := n.Table.EdgeInfo(edge)
	return &group.EdgeShare{Edge: edge, Context: info.Context, Before: info.Before, After: info.After}
}

// placeAmong presents the edge in edges with the given identity. It returns nil if there is no such edge, or if edge is
// 0, the remainder.
func placeAmong(n *Names, edges []group.EdgeShare, edge trace.Edge) *Place {
	for i := range edges {
		if e := &edges[i]; edge != 0 && e.Edge == edge {
			return new(NewPlace(n, e))
		}
	}
	return nil
}

// newTarget presents the target of a step, or returns nil if it has no target.
func newTarget(n *Names, step trace.Op) *Target {
	if target := n.Table.Target(step); target != 0 {
		return &Target{n.Service(target), n.OpName(target), n.External(target)}
	}
	return nil
}

// NewEdge presents an edge of a group or request type.
func NewEdge(n *Names, e *group.EdgeShare) Edge {
	return Edge{
		Place:         NewPlace(n, e),
		MeanNS:        Number(e.Mean),
		ShareMean:     Number(e.ShareMean),
		ShareVariance: Number(e.ShareVariance),
		ShareLow:      Number(e.ShareLow),
		ShareHigh:     Number(e.ShareHigh),
		TailLiftNS:    Number(e.TailLift),
	}
}
