package report

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// JSON writes r as one JSON object. It writes the object piece by piece, because the object may be large. Fractions are
// from 0 to 1, durations in nanoseconds, identities in hexadecimal, and contexts are lists of "service operation" from
// the root down. Unknown values are null.
func JSON(w io.Writer, r *offline.Report, in Input) error {
	n := newNames(r, describe.Verbatim)
	rejected := r.Rejected
	if rejected == nil {
		rejected = map[trace.Reason]int{}
	}
	o := objectWriter{out: w}
	o.field("traces", r.Traces)
	o.field("spans", r.Spans)
	o.field("complete", r.Complete)
	o.field("judged", r.Judged)
	o.field("rejected", rejected)
	o.field("coverage", n.jsonCoverage(&r.Coverage))
	o.list("names_with_identities", len(r.Families), func(i int) any {
		f := &r.Families[i]
		return map[string]any{"service": n.Table.Text(f.Service), "name": f.Name, "names": f.Names}
	})
	if len(in.Cut) > 0 {
		o.field("cut", in.Cut) // errors of files that end early
	}
	if r.Incidents != nil {
		of := backtestNames(r.Incidents, describe.Verbatim)
		incidents := r.Incidents.Incidents
		o.list("incidents", len(incidents), func(i int) any { return of.jsonIncident(&incidents[i]) })
	}
	o.field("refused", r.Refused) // requests judged by request type only
	o.list("groups", len(r.Groups), func(i int) any { return n.jsonGroup(&r.Groups[i]) })
	o.list("problems", len(r.Problems), func(i int) any { return n.jsonProblem(i+1, &r.Problems[i]) })
	o.list("common", len(r.Common), func(i int) any { return describe.NewCommon(n.Names, &r.Common[i]) })
	return o.end()
}

// objectWriter writes a JSON object field by field, indented by two spaces. After an error, it writes nothing more, and
// end returns the error.
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

// value writes v as JSON. All lines except the first start with indentation.
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

// list writes the field name with a list of the values at(0) to at(n-1), one at a time.
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
	ID            string          `json:"id"`
	Level         string          `json:"level"`
	RequestType   string          `json:"request_type"`
	RequestTypeID string          `json:"request_type_id"`
	Count         uint64          `json:"count"`
	MeanNS        int64           `json:"mean_ns"`
	P50NS         int64           `json:"p50_ns"`
	P99NS         int64           `json:"p99_ns"`
	CoV           describe.Number `json:"cov"`
	CoVLow        describe.Number `json:"cov_low"`
	CoVHigh       describe.Number `json:"cov_high"`
	Failed        uint64          `json:"failed"`
	Between       describe.Number `json:"between"`    // share of a request type's variance that lies between its groups
	SizeModel     *jsonSizeModel  `json:"size_model"` // may be null
	Bins          []jsonBin       `json:"bins"`
	Edges         []describe.Edge `json:"edges"`
}

// jsonBin is an attribute value that all requests of a group have in common.
type jsonBin struct {
	Variable string   `json:"variable"`
	Value    string   `json:"value"`
	Where    []string `json:"where"`
}

// jsonProblem is a problem as in the API, with additional evidence that only reports contain.
type jsonProblem struct {
	Rank int `json:"rank"`
	describe.Problem
	describe.Findings
	describe.Causes

	Proposed  []jsonPick    `json:"proposed"`
	Missing   []string      `json:"missing"` // operations that carry the problem but have no tracepoint to enable
	Exemplars jsonExemplars `json:"exemplars"`
}

type jsonPick struct {
	Tracepoint string          `json:"tracepoint"`
	Context    []string        `json:"context"`
	Score      describe.Number `json:"score"` // expected share revealed per cost
	Reason     string          `json:"reason"`
}

func (n *names) jsonGroup(s *group.Summary) jsonGroup {
	g := jsonGroup{
		ID:            s.ID.String(),
		Level:         s.Level.String(),
		RequestType:   n.RequestType(s.RequestType, s.Entry),
		RequestTypeID: s.RequestType.String(),
		Count:         s.Count,
		MeanNS:        int64(s.Mean),
		P50NS:         int64(s.P50),
		P99NS:         int64(s.P99),
		CoV:           describe.Number(s.CoV),
		CoVLow:        describe.Number(s.CoVLow),
		CoVHigh:       describe.Number(s.CoVHigh),
		Failed:        s.Failed,
		Between:       describe.Number(s.Between),
		SizeModel:     jsonSizeModelOf(s.Size),
		Bins:          []jsonBin{},
		Edges:         []describe.Edge{},
	}
	for i := range s.Bins {
		b := &s.Bins[i]
		g.Bins = append(g.Bins, jsonBin{Variable: b.Variable, Value: b.Value, Where: n.Context(b.Where)})
	}
	for i := range s.Edges {
		g.Edges = append(g.Edges, describe.NewEdge(n.Names, &s.Edges[i]))
	}
	return g
}

func (n *names) jsonProblem(rank int, r *offline.Problem) jsonProblem {
	p := &r.Problem
	j := jsonProblem{
		Rank:      rank,
		Problem:   describe.NewProblem(n.Names, p, 0, 0),
		Findings:  describe.NewFindings(n.Names, p),
		Causes:    describe.NewCauses(n.Names, p, &r.Findings),
		Proposed:  []jsonPick{},
		Missing:   []string{},
		Exemplars: jsonExemplarsOf(&r.Exemplars),
	}
	for i := range r.Proposed {
		j.Proposed = append(j.Proposed, n.jsonPick(&r.Proposed[i]))
	}
	for _, op := range r.Missing {
		j.Missing = append(j.Missing, n.Op(op))
	}
	return j
}

func (n *names) jsonPick(k *search.Pick) jsonPick {
	return jsonPick{
		Tracepoint: n.tracepoint(k),
		Context:    n.Context(k.Context),
		Score:      describe.Number(k.Score),
		Reason:     k.Reason,
	}
}
