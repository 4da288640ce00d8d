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
	RequestType   string   `json:"request_type"` // name of the request type
	RequestTypeID string   `json:"request_type_id"`
	Service       string   `json:"service"`   // service of the entry operation
	Operation     string   `json:"operation"` // name of the entry operation
	Diagnosis     string   `json:"diagnosis"` // one sentence
	Requests      uint64   `json:"requests"`  // number of judged requests
	Rate          Number   `json:"rate"`      // requests per second
	MeanNS        *int64   `json:"mean_ns"`
	ExpectedNS    *int64   `json:"expected_ns"`
	P50NS         *int64   `json:"p50_ns"`
	P99NS         *int64   `json:"p99_ns"`
	CoV           Number   `json:"cov"`
	CoVLow        Number   `json:"cov_low"`
	CoVHigh       Number   `json:"cov_high"`
	Impact        Number   `json:"impact"` // added latency in ns per second
	Sentence      Sentence `json:"-"`      // Diagnosis with its evidence
}

// Findings present the edges and explanations of a problem.
type Findings struct {
	Edge         *ProblemEdge  `json:"edge"`  // leading edge; may be nil
	Edges        []ProblemEdge `json:"edges"` // the leading edge first
	Explanations []Explanation `json:"explanations"`
}

// ProblemEdge presents an edge of the critical path of a problem's requests.
type ProblemEdge struct {
	Edge

	ExcessNS     Number `json:"excess_ns"`
	ExcessLowNS  Number `json:"excess_low_ns"` // 95 % interval
	ExcessHighNS Number `json:"excess_high_ns"`
	Affected     Number `json:"affected"` // fraction of the requests that bears the excess
	Score        Number `json:"score"`    // fraction of the problem
}

// Explanation presents a variable that accounts for part of a problem.
type Explanation struct {
	Name       string     `json:"name"` // the variable with its value and place, as text
	Sentence   Sentence   `json:"-"`    // Name as a Sentence
	Variable   string     `json:"variable"`
	Value      string     `json:"value"`  // empty if the variable is a number
	Where      []string   `json:"where"`  // context of the variable; empty for the whole request
	Target     *Place     `json:"target"` // edge that it explains; nil if it explains the duration
	TargetEdge trace.Edge `json:"-"`      // 0 if it explains the duration
	Effect     Number     `json:"effect"` // fraction of the variance, with its 95 % interval
	Low        Number     `json:"low"`
	High       Number     `json:"high"`
	PValue     Number     `json:"p_value"`
	Remains    Number     `json:"remains"` // fraction of the CoV that remains among requests with equal values
}

// IdentifyProblem presents only the identity of a problem. The numbers of the result are unknown.
func IdentifyProblem(n *Names, problem, requestType, group analysis.Hash, entry trace.Op) Problem {
	return Problem{
		ID:            problem.String(),
		Group:         group.String(),
		RequestType:   n.RequestType(requestType, entry),
		RequestTypeID: requestType.String(),
		Service:       n.Service(entry),
		Operation:     n.OpName(entry),
		Rate:          Unknown(),
		CoV:           Unknown(),
		CoVLow:        Unknown(),
		CoVHigh:       Unknown(),
		Impact:        Unknown(),
	}
}

// NewProblem presents p. located is the operation that the investigation located, or 0, and share is its share of p.
func NewProblem(n *Names, p *detect.Problem, located trace.Op, share float64) Problem {
	x := IdentifyProblem(n, p.ID, p.RequestType, p.Group, p.Entry)
	x.Kind, x.Onset, x.Level = p.Kind.String(), p.Onset.String(), p.Level.String()
	x.Sentence = Diagnosis(n, p, located, share)
	x.Diagnosis = x.Sentence.String()
	x.Requests, x.Rate, x.MeanNS, x.ExpectedNS = p.Requests, Number(p.Rate), nanos(p.Mean), nanos(p.Expected)
	x.P50NS, x.P99NS = nanos(p.P50), nanos(p.P99)
	x.CoV, x.CoVLow, x.CoVHigh, x.Impact = Number(p.CoV), Number(p.CoVLow), Number(p.CoVHigh), Number(p.Impact)
	return x
}

// NewFindings presents the edges and explanations of p.
func NewFindings(n *Names, p *detect.Problem) Findings {
	f := Findings{Edges: ProblemEdges(n, p.Edges), Explanations: Explanations(n, p.Explanations, p.Edges)}
	if len(f.Edges) > 0 {
		f.Edge = &f.Edges[0]
	}
	return f
}

// ProblemEdges presents the edges of a problem. The result isn't nil, because JSON encodes nil as null.
func ProblemEdges(n *Names, edges []group.EdgeShare) []ProblemEdge {
	all := make([]ProblemEdge, 0, len(edges))
	for i := range edges {
		e := &edges[i]
		all = append(all, ProblemEdge{
			Edge:         NewEdge(n, e),
			ExcessNS:     Number(e.Excess),
			ExcessLowNS:  Number(e.ExcessLow),
			ExcessHighNS: Number(e.ExcessHigh),
			Affected:     Number(e.Affected),
			Score:        Number(e.Score),
		})
	}
	return all
}

// Explanations presents explanations of a problem with the given edges. The result isn't nil, because JSON encodes nil
// as null.
func Explanations(n *Names, list []detect.Explanation, edges []group.EdgeShare) []Explanation {
	all := make([]Explanation, 0, len(list))
	for i := range list {
		x := &list[i]
		of, where := n.variable(x)
		text := of.And(where).quiet()
		all = append(all, Explanation{
			Name:       text.String(),
			Sentence:   text,
			Variable:   n.Clean(x.Variable),
			Value:      n.Clean(x.Value),
			Where:      n.Context(x.Where),
			Target:     placeAmong(n, edges, x.Target),
			TargetEdge: x.Target,
			Effect:     Number(x.Effect),
			Low:        Number(x.Low),
			High:       Number(x.High),
			PValue:     Number(x.PValue),
			Remains:    Number(x.Remains),
		})
	}
	return all
}
