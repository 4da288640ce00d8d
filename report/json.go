package report

import (
	"bytes"
	"encoding/json"
	"io"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// JSON writes r as one JSON object, piece by piece: it may be large. Fractions are 0–1, durations integers or numbers of nanoseconds,
// identities hex digits, contexts lists of "service operation" from the root down; null stands for what is not known.
func JSON(w io.Writer, r *engine.Report) error {
	n := newNames(r, describe.Verbatim)
	rejected := r.Rejected
	if rejected == nil {
		rejected = map[trace.Reason]int{}
	}
	o := objectWriter{out: w}
	o.field("traces", r.Traces)
	o.field("spans", r.Spans)
	o.field("complete", r.Complete)
	o.field("rejected", rejected)
	o.field("refused", r.Refused) // requests that were not told apart by group
	o.list("groups", len(r.Groups), func(i int) any { return n.jsonGroup(&r.Groups[i]) })
	o.list("problems", len(r.Problems), func(i int) any { return n.jsonProblem(i+1, &r.Problems[i]) })
	o.list("common", len(r.Common), func(i int) any { return n.jsonCommon(&r.Common[i]) })
	return o.end()
}

// objectWriter writes a JSON object, indented by two spaces, field by field. After an error it does nothing.
type objectWriter struct {
	out    io.Writer
	fields int
	err    error
}

func (o *objectWriter) text(s string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.out, s)
	}
}

// value writes v, whose further lines begin with the given indentation.
func (o *objectWriter) value(v any, indentation string) {
	if o.err != nil {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indentation, "  ")
	if o.err = enc.Encode(v); o.err == nil {
		_, o.err = o.out.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	}
}

func (o *objectWriter) name(name string) {
	o.text(map[bool]string{true: "{\n", false: ",\n"}[o.fields == 0] + `  "` + name + `": `)
	o.fields++
}

func (o *objectWriter) field(name string, v any) {
	o.name(name)
	o.value(v, "  ")
}

// list writes n values, which are asked for one after the other.
func (o *objectWriter) list(name string, n int, at func(i int) any) {
	o.name(name)
	if n == 0 {
		o.text("[]")
		return
	}
	for i := 0; i < n && o.err == nil; i++ {
		o.text(map[bool]string{true: "[\n    ", false: ",\n    "}[i == 0])
		o.value(at(i), "    ")
	}
	o.text("\n  ]")
}

func (o *objectWriter) end() error {
	o.text("\n}\n")
	return o.err
}

type jsonGroup struct {
	ID            string         `json:"id"`
	Level         string         `json:"level"`
	RequestType   string         `json:"request_type"`
	RequestTypeID string         `json:"request_type_id"`
	Count         uint64         `json:"count"`
	MeanNS        int64          `json:"mean_ns"`
	P50NS         int64          `json:"p50_ns"`
	P99NS         int64          `json:"p99_ns"`
	CoV           number         `json:"cov"`
	CoVLow        number         `json:"cov_low"`
	CoVHigh       number         `json:"cov_high"`
	Failed        uint64         `json:"failed"`
	Between       number         `json:"between"`    // part of the variance of a request type between its groups
	SizeModel     *jsonSizeModel `json:"size_model"` // null: not judged by size
	Bins          []jsonBin      `json:"bins"`
	Edges         []jsonEdge     `json:"edges"`
}

// jsonBin is what the requests of a group have in common besides their path.
type jsonBin struct {
	Variable string   `json:"variable"`
	Value    string   `json:"value"`
	Where    []string `json:"where"`
}

// jsonPlace is an edge of a critical path without its statistics.
type jsonPlace struct {
	Context   []string `json:"context"` // root first, the edge's own operation last; empty for the remainder
	Service   string   `json:"service"`
	Operation string   `json:"operation"` // "other" for the remainder
	Kind      string   `json:"kind"`
	Before    string   `json:"before,omitempty"` // critical child before it; groups only
	After     string   `json:"after,omitempty"`
	Callee    string   `json:"callee,omitempty"` // the edge is time on the wire to, or in the queue of, this operation
}

type jsonEdge struct {
	jsonPlace

	MeanNS        number `json:"mean_ns"`
	ShareMean     number `json:"share_mean"`
	ShareVariance number `json:"share_variance"`
	ShareLow      number `json:"share_low"`
	ShareHigh     number `json:"share_high"`
	TailLiftNS    number `json:"tail_lift_ns"`
}

type jsonProblem struct {
	Rank          int               `json:"rank"`
	ID            string            `json:"id"`
	Kind          string            `json:"kind"`
	Onset         string            `json:"onset"`
	Level         string            `json:"level"`
	Group         string            `json:"group"`
	RequestType   string            `json:"request_type"`
	RequestTypeID string            `json:"request_type_id"`
	Diagnosis     string            `json:"diagnosis"`
	Requests      uint64            `json:"requests"`
	MeanNS        int64             `json:"mean_ns"`
	ExpectedNS    *int64            `json:"expected_ns"` // null: nothing is known
	CoV           number            `json:"cov"`
	CoVLow        number            `json:"cov_low"`
	CoVHigh       number            `json:"cov_high"`
	Impact        number            `json:"impact"` // ns lost per second
	Edge          *jsonLeading      `json:"edge"`
	Edges         []jsonLeading     `json:"edges"`
	Explanations  []jsonExplanation `json:"explanations"`
	Joint         number            `json:"joint_correlation"`
	Unrelated     []jsonUnrelated   `json:"unrelated"`
	Contrasts     []jsonContrast    `json:"contrasts"`
	WhatIf        []jsonRecovery    `json:"what_if"`
	Proposed      []jsonPick        `json:"proposed"`
	Missing       []string          `json:"missing"` // operations that carry what is wrong and have no tracepoint to switch on
	Exemplars     jsonExemplars     `json:"exemplars"`
}

// jsonLeading is an edge as it counts in a problem.
type jsonLeading struct {
	jsonEdge

	ExcessNS     number `json:"excess_ns"`
	ExcessLowNS  number `json:"excess_low_ns"`
	ExcessHighNS number `json:"excess_high_ns"`
	Score        number `json:"score"`
}

// jsonUnrelated is an attribute that need not be recorded for the problem's sake.
type jsonUnrelated struct {
	Variable string   `json:"variable"`
	Where    []string `json:"where"`
}

type jsonExplanation struct {
	Variable string     `json:"variable"`
	Value    string     `json:"value"`
	Where    []string   `json:"where"`  // empty: the whole request
	Target   *jsonPlace `json:"target"` // null: the duration
	Effect   number     `json:"effect"`
	Low      number     `json:"low"`
	High     number     `json:"high"`
	PValue   number     `json:"p_value"`
	Remains  number     `json:"remains"`
}

type jsonPick struct {
	Tracepoint string   `json:"tracepoint"`
	Context    []string `json:"context"`
	Score      number   `json:"score"` // expected share revealed, per cost
	Reason     string   `json:"reason"`
}

// number is a float64 that JSON shows as null where it is not a number.
type number float64

// MarshalJSON implements json.Marshaler.
func (x number) MarshalJSON() ([]byte, error) {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

func (n *names) jsonGroup(s *group.Summary) jsonGroup {
	g := jsonGroup{
		ID: s.ID.String(), Level: s.Level.String(),
		RequestType: n.RequestType(s.RequestType, s.Entry), RequestTypeID: s.RequestType.String(),
		Count: s.Count, MeanNS: int64(s.Mean), P50NS: int64(s.P50), P99NS: int64(s.P99),
		CoV: number(s.CoV), CoVLow: number(s.CoVLow), CoVHigh: number(s.CoVHigh),
		Failed: s.Failed, Between: number(s.Between), SizeModel: jsonSizeModelOf(s.Size), Bins: []jsonBin{}, Edges: []jsonEdge{},
	}
	for i := range s.Bins {
		b := &s.Bins[i]
		g.Bins = append(g.Bins, jsonBin{Variable: b.Variable, Value: b.Value, Where: n.Context(b.Where)})
	}
	for i := range s.Edges {
		g.Edges = append(g.Edges, n.jsonEdge(&s.Edges[i]))
	}
	return g
}

func (n *names) jsonPlace(e *group.EdgeShare) jsonPlace {
	if e.Edge == 0 {
		return jsonPlace{Context: []string{}, Operation: describe.OtherPlaces}
	}
	op := n.Last(e.Context)
	p := jsonPlace{
		Context: n.Context(e.Context), Service: n.Service(op), Operation: n.OpName(op),
		Kind: n.Table.Operation(op).Kind.String(),
	}
	p.Before, p.After, p.Callee = n.Op(e.Before), n.Op(e.After), n.Op(e.Callee)
	return p
}

func (n *names) jsonEdge(e *group.EdgeShare) jsonEdge {
	return jsonEdge{
		jsonPlace: n.jsonPlace(e),
		MeanNS:    number(e.Mean), ShareMean: number(e.ShareMean), ShareVariance: number(e.ShareVariance),
		ShareLow: number(e.ShareLow), ShareHigh: number(e.ShareHigh), TailLiftNS: number(e.TailLift),
	}
}

func (n *names) jsonLeading(e *group.EdgeShare) jsonLeading {
	return jsonLeading{
		jsonEdge: n.jsonEdge(e), ExcessNS: number(e.Excess), ExcessLowNS: number(e.ExcessLow),
		ExcessHighNS: number(e.ExcessHigh), Score: number(e.Score),
	}
}

func (n *names) jsonProblem(rank int, r *engine.ProblemReport) jsonProblem {
	p := &r.Problem
	j := jsonProblem{
		Rank: rank, ID: p.ID.String(), Kind: p.Kind.String(), Onset: p.Onset.String(), Level: p.Level.String(),
		Group: p.Group.String(), RequestType: n.RequestType(p.RequestType, p.Entry), RequestTypeID: p.RequestType.String(),
		Diagnosis: n.Diagnosis(p, 0).String(), Requests: p.Requests, MeanNS: int64(p.Mean),
		CoV: number(p.CoV), CoVLow: number(p.CoVLow), CoVHigh: number(p.CoVHigh), Impact: number(p.Impact),
		Edges: []jsonLeading{}, Explanations: []jsonExplanation{}, Joint: number(r.Joint), Unrelated: []jsonUnrelated{},
		Contrasts: []jsonContrast{}, WhatIf: []jsonRecovery{}, Proposed: []jsonPick{}, Missing: []string{},
	}
	if p.Expected != 0 {
		expected := int64(p.Expected)
		j.ExpectedNS = &expected
	}
	for i := range p.Edges {
		j.Edges = append(j.Edges, n.jsonLeading(&p.Edges[i]))
	}
	if len(j.Edges) > 0 {
		j.Edge = &j.Edges[0]
	}
	for i := range p.Explanations {
		j.Explanations = append(j.Explanations, n.jsonExplanation(p, &p.Explanations[i]))
	}
	for i := range r.Unrelated {
		x := &r.Unrelated[i]
		j.Unrelated = append(j.Unrelated, jsonUnrelated{Variable: x.Name, Where: n.Context(x.Context)})
	}
	for i := range r.Contrasts {
		j.Contrasts = append(j.Contrasts, n.jsonContrast(p, &r.Contrasts[i]))
	}
	for i := range r.Recoveries {
		j.WhatIf = append(j.WhatIf, n.jsonRecovery(p, &r.Recoveries[i]))
	}
	for i := range r.Proposed {
		j.Proposed = append(j.Proposed, n.jsonPick(&r.Proposed[i]))
	}
	for _, op := range r.Missing {
		j.Missing = append(j.Missing, n.Op(op))
	}
	j.Exemplars = jsonExemplarsOf(&r.Exemplars)
	return j
}

func (n *names) jsonExplanation(p *detect.Problem, x *detect.Explanation) jsonExplanation {
	j := jsonExplanation{
		Variable: x.Variable, Value: x.Value, Where: n.Context(x.Where), Effect: number(x.Effect), Low: number(x.Low),
		High: number(x.High), PValue: number(x.PValue), Remains: number(x.Remains),
	}
	for i := range p.Edges {
		if e := &p.Edges[i]; e.Edge == x.Target && x.Target != 0 {
			target := n.jsonPlace(e)
			j.Target = &target
		}
	}
	return j
}

func (n *names) jsonPick(k *search.Pick) jsonPick {
	return jsonPick{Tracepoint: n.tracepoint(k), Context: n.Context(k.Context), Score: number(k.Score), Reason: k.Reason}
}
