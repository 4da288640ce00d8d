package describe

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Problem presents a problem. Fractions are from 0 to 1, and durations are in nanoseconds. Nil and unknown numbers are
// null in JSON.
//
// The API, reports and webhooks derive their views of a problem from it. Reports and webhooks use its JSON form.
type Problem struct {
	ID            string   `json:"id"`
	Kind          string   `json:"kind,omitempty"` // empty, like the numbers, if only the identity is known
	Onset         string   `json:"onset,omitempty"`
	Level         string   `json:"level,omitempty"`
	Group         string   `json:"group"`
	RequestType   string   `json:"request_type"` // its name
	RequestTypeID string   `json:"request_type_id"`
	Service       string   `json:"service"`   // of the entry operation
	Operation     string   `json:"operation"` // the name of the entry operation
	Diagnosis     string   `json:"diagnosis"` // one sentence
	Requests      uint64   `json:"requests"`  // judged
	Rate          Number   `json:"rate"`      // requests per second
	MeanNS        *int64   `json:"mean_ns"`
	ExpectedNS    *int64   `json:"expected_ns"`
	P50NS         *int64   `json:"p50_ns"`
	P99NS         *int64   `json:"p99_ns"`
	CoV           Number   `json:"cov"`
	CoVLow        Number   `json:"cov_low"`
	CoVHigh       Number   `json:"cov_high"`
	Impact        Number   `json:"impact"` // added latency, ns per second
	Sentence      Sentence `json:"-"`      // Diagnosis with its evidence
}

// Findings present the edges and explanations of a problem.
type Findings struct {
	Edge         *ProblemEdge  `json:"edge"`  // the leading edge; may be nil
	Edges        []ProblemEdge `json:"edges"` // the leading edge first
	Explanations []Explanation `json:"explanations"`
}

// Place presents an edge of a critical path without its statistics.
type Place struct {
	Edge      trace.Edge `json:"-"`
	Name      string     `json:"name"`    // a short text
	Context   []string   `json:"context"` // root first, the edge's own operation last; empty for the remainder
	Service   string     `json:"service"`
	Operation string     `json:"operation"` // [OtherPlaces] for the remainder
	Kind      string     `json:"kind"`
	Before    string     `json:"before,omitempty"` // the critical child before it; for groups
	After     string     `json:"after,omitempty"`
	Target    *Target    `json:"target,omitempty"` // the operation that the place calls, if known
}

// Target presents the operation that another one calls. The time of the call is spent on the wire to the target, in its
// queue or, if the target is external, in the target.
type Target struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	External  bool   `json:"external"` // it emits no spans: the attributes of its caller name it
}

// Edge presents an edge of the critical path of a group or request type. Means are per request; requests without the
// edge count 0.
type Edge struct {
	Place

	MeanNS        Number `json:"mean_ns"`
	ShareMean     Number `json:"share_mean"`
	ShareVariance Number `json:"share_variance"`
	ShareLow      Number `json:"share_low"` // 95 % interval of ShareVariance
	ShareHigh     Number `json:"share_high"`
	TailLiftNS    Number `json:"tail_lift_ns"`
}

// ProblemEdge presents an edge of the critical path of a problem's requests.
type ProblemEdge struct {
	Edge

	ExcessNS     Number `json:"excess_ns"`
	ExcessLowNS  Number `json:"excess_low_ns"` // 95 % interval
	ExcessHighNS Number `json:"excess_high_ns"`
	Affected     Number `json:"affected"` // part of the requests that bears the excess
	Score        Number `json:"score"`    // part of the problem
}

// Explanation presents a variable that accounts for part of a problem.
type Explanation struct {
	Name       string     `json:"name"` // the variable with value and place, as text
	Variable   string     `json:"variable"`
	Value      string     `json:"value"`  // empty if the variable is a number
	Where      []string   `json:"where"`  // context; empty for the whole request
	Target     *Place     `json:"target"` // the edge that it explains; nil if it explains the duration
	TargetEdge trace.Edge `json:"-"`      // 0 if it explains the duration
	Effect     Number     `json:"effect"` // part of the variance, with its 95 % interval
	Low        Number     `json:"low"`
	High       Number     `json:"high"`
	PValue     Number     `json:"p_value"`
	Remains    Number     `json:"remains"` // part of the CoV that remains within equal values
}

// Identify presents a problem with only its identity. Its numbers are unknown.
func (n *Names) Identify(problem, requestType, group analysis.Hash, entry trace.Op) Problem {
	return Problem{
		ID: problem.String(), Group: group.String(), RequestType: n.RequestType(requestType, entry), RequestTypeID: requestType.String(),
		Service: n.Service(entry), Operation: n.OpName(entry),
		Rate: Unknown(), CoV: Unknown(), CoVLow: Unknown(), CoVHigh: Unknown(), Impact: Unknown(),
	}
}

// Problem presents p. located is the operation that the investigation located, or 0, and share is its share of p.
func (n *Names) Problem(p *detect.Problem, located trace.Op, share float64) Problem {
	x := n.Identify(p.ID, p.RequestType, p.Group, p.Entry)
	x.Kind, x.Onset, x.Level = p.Kind.String(), p.Onset.String(), p.Level.String()
	x.Sentence = n.Diagnosis(p, located, share)
	x.Diagnosis = x.Sentence.String()
	x.Requests, x.Rate, x.MeanNS, x.ExpectedNS = p.Requests, Number(p.Rate), nanos(p.Mean), nanos(p.Expected)
	x.P50NS, x.P99NS = nanos(p.P50), nanos(p.P99)
	x.CoV, x.CoVLow, x.CoVHigh, x.Impact = Number(p.CoV), Number(p.CoVLow), Number(p.CoVHigh), Number(p.Impact)
	return x
}

// Findings presents the edges and explanations of p.
func (n *Names) Findings(p *detect.Problem) Findings {
	f := Findings{Edges: n.ProblemEdges(p.Edges), Explanations: n.Explanations(p.Explanations, p.Edges)}
	if len(f.Edges) > 0 {
		f.Edge = &f.Edges[0]
	}
	return f
}

// Place presents e without its statistics.
func (n *Names) Place(e *group.EdgeShare) Place {
	p := Place{Edge: e.Edge, Name: n.Edge(e), Context: []string{}, Operation: OtherPlaces}
	if e.Edge == 0 {
		return p
	}
	op := n.Last(e.Context)
	p.Context, p.Service, p.Operation, p.Kind = n.Context(e.Context), n.Service(op), n.OpName(op), n.Table.Operation(op).Kind.String()
	p.Before, p.After, p.Target = n.Op(e.Before), n.Op(e.After), n.target(op)
	return p
}

// target presents the target of a step, or returns nil if it has no target.
func (n *Names) target(step trace.Op) *Target {
	if target := n.Table.Target(step); target != 0 {
		return &Target{n.Service(target), n.OpName(target), n.External(target)}
	}
	return nil
}

// PlaceOf presents the edge in edges with the given identity. It returns nil if there is none, or if edge is 0, the
// remainder.
func (n *Names) PlaceOf(edges []group.EdgeShare, edge trace.Edge) *Place {
	for i := range edges {
		if e := &edges[i]; edge != 0 && e.Edge == edge {
			place := n.Place(e)
			return &place
		}
	}
	return nil
}

// PathEdge presents an edge of a group or request type.
func (n *Names) PathEdge(e *group.EdgeShare) Edge {
	return Edge{
		Place: n.Place(e), MeanNS: Number(e.Mean), ShareMean: Number(e.ShareMean), ShareVariance: Number(e.ShareVariance),
		ShareLow: Number(e.ShareLow), ShareHigh: Number(e.ShareHigh), TailLiftNS: Number(e.TailLift),
	}
}

// ProblemEdges presents the edges of a problem. The result isn't nil, because JSON encodes nil as null.
func (n *Names) ProblemEdges(edges []group.EdgeShare) []ProblemEdge {
	all := make([]ProblemEdge, 0, len(edges))
	for i := range edges {
		e := &edges[i]
		all = append(all, ProblemEdge{
			Edge: n.PathEdge(e), ExcessNS: Number(e.Excess), ExcessLowNS: Number(e.ExcessLow), ExcessHighNS: Number(e.ExcessHigh),
			Affected: Number(e.Affected), Score: Number(e.Score),
		})
	}
	return all
}

// Explanations presents explanations of a problem with the given edges. The result isn't nil, because JSON encodes nil
// as null.
func (n *Names) Explanations(list []detect.Explanation, edges []group.EdgeShare) []Explanation {
	all := make([]Explanation, 0, len(list))
	for i := range list {
		x := &list[i]
		text, where := n.Variable(x)
		all = append(all, Explanation{
			Name: text + where, Variable: n.Clean(x.Variable), Value: n.Clean(x.Value), Where: n.Context(x.Where),
			Target: n.PlaceOf(edges, x.Target), TargetEdge: x.Target, Effect: Number(x.Effect), Low: Number(x.Low), High: Number(x.High),
			PValue: Number(x.PValue), Remains: Number(x.Remains),
		})
	}
	return all
}
