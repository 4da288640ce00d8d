package describe

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// Suspect presents a service with its additional cost over a baseline. Scores and parts are per request: times are in
// units of the mean duration of requests in the baseline, and failures, unanswered calls and changed call flows are
// counts.
type Suspect struct {
	Service    string             `json:"service"`
	EmitsSpans bool               `json:"emits_spans"` // if false, only attributes of its callers name it
	Score      Number             `json:"score"`       // the sum of the parts
	Parts      SuspectParts       `json:"parts"`
	Operations []SuspectOperation `json:"operations"`  // in decreasing order of score
	AddedCalls []AddedCall        `json:"added_calls"` // in decreasing order of time
	Instances  []SuspectInstance  `json:"-"`           // in decreasing order of part
}

// AddedCall presents an operation that a suspect calls more often than before.
type AddedCall struct {
	Name   string `json:"name"`
	Caller string `json:"caller"`
	Before Number `json:"before"` // number of calls per call of the caller
	Now    Number `json:"now"`
	Added  Number `json:"added_ns"` // added time per call of the caller
}

// SuspectParts are the parts of a [Suspect]'s score; see [compare.Suspect].
type SuspectParts struct {
	Own        Number `json:"own"`
	Added      Number `json:"added"`
	In         Number `json:"in"`
	Out        Number `json:"out"`
	Errors     Number `json:"errors"`
	Unanswered Number `json:"unanswered"`
	Silent     Number `json:"silent"`
	Shape      Number `json:"shape"`
	Rest       Number `json:"rest"`
}

// SuspectOperation presents the contribution of an operation to the score of a [Suspect].
type SuspectOperation struct {
	Op        trace.Op `json:"-"`       // a step
	Service   string   `json:"service"` // service of a caller, if the suspect emits no spans
	Operation string   `json:"operation"`
	Kind      string   `json:"kind"`
	Target    *Target  `json:"target,omitempty"` // operation that this one calls
	Score     Number   `json:"score"`
}

// NewSuspect presents s.
func NewSuspect(n *Names, s *compare.Suspect) Suspect {
	x := Suspect{
		Service:    n.Text(s.Service),
		EmitsSpans: !s.Opaque,
		Score:      Number(s.Score),
		Parts: SuspectParts{
			Own:        Number(s.Own),
			Added:      Number(s.Added),
			In:         Number(s.In),
			Out:        Number(s.Out),
			Errors:     Number(s.Errors),
			Unanswered: Number(s.Unanswered),
			Silent:     Number(s.Silent),
			Shape:      Number(s.Shape),
			Rest:       Number(s.Rest),
		},
		Operations: []SuspectOperation{},
		AddedCalls: []AddedCall{},
	}
	for _, c := range s.AddedCalls {
		x.AddedCalls = append(x.AddedCalls, AddedCall{
			Name:   n.Op(c.Op),
			Caller: n.Op(c.Caller),
			Before: Number(c.Before),
			Now:    Number(c.Now),
			Added:  Number(c.Nanos),
		})
	}
	for _, o := range s.Operations {
		x.Operations = append(x.Operations, SuspectOperation{
			Op:        o.Op,
			Service:   n.Service(o.Op),
			Operation: n.OpName(o.Op),
			Kind:      n.Kind(o.Op),
			Target:    newTarget(n, o.Op),
			Score:     Number(o.Score),
		})
	}
	for _, i := range s.Instances {
		x.Instances = append(x.Instances, SuspectInstance{n.Text(i.Key), n.Text(i.Value), i.Calls, Number(i.Part)})
	}
	return x
}

// Machines returns the instances of x without versions.
func (x *Suspect) Machines() []SuspectInstance {
	return slices.DeleteFunc(slices.Clone(x.Instances), func(x SuspectInstance) bool { return x.Key == keyVersion })
}

// SuspectInstance presents an instance, a host, a zone or a version with its part of the cost of a [Suspect].
type SuspectInstance struct {
	Key   string
	Value string
	Calls uint64 // number of calls in the window
	Part  Number // fraction of the cost, 0–1
}

// keyVersion is the attribute for versions. All other attributes name instances, hosts and zones.
const keyVersion = "service.version"
