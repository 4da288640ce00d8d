package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Type is what happened.
type Type string

// The types of events.
const (
	ProblemOpened    Type = "problem.opened"
	ProblemLocated   Type = "problem.located"   // one place, or up to three together, stand out
	ProblemExplained Type = "problem.explained" // and a variable accounts for it
	ProblemClosed    Type = "problem.closed"
	Decided          Type = "decision" // the plan or an investigation's state changed
	Test             Type = "test"     // somebody wants to know whether an endpoint answers
)

// Event is something that happened, with everything that those who are told should know. Text in it is printable and bounded, but
// not escaped. It is immutable.
type Event struct {
	ID       string `json:"id"` // the same whenever the event is made again
	Type     Type   `json:"type"`
	At       moment `json:"timestamp"`
	Source   string `json:"source"` // who tells: the address of the UI, or a name
	Data     Data   `json:"data"`
	problem  analysis.Hash
	resolved bool // the problem is no more
}

// Data is what an event is about. Fractions are 0–1, durations nanoseconds, contexts lists of "service operation" from the root down;
// null stands for what is not known.
type Data struct {
	Problem  *Problem  `json:"problem"`  // null: the event is about none
	Decision *Decision `json:"decision"` // null: there was none
}

// Problem is a problem as it was last seen.
type Problem struct {
	ID            string        `json:"id"`
	URL           string        `json:"url,omitempty"` // of its page
	Status        string        `json:"status"`        // of its investigation
	Opened        moment        `json:"opened"`
	Diagnosis     string        `json:"diagnosis"` // one sentence
	RequestType   string        `json:"request_type"`
	RequestTypeID string        `json:"request_type_id"`
	Group         string        `json:"group"`
	Service       string        `json:"service"`   // of the entry operation
	Operation     string        `json:"operation"` // the entry operation's name
	Kind          string        `json:"kind,omitempty"`
	Onset         string        `json:"onset,omitempty"`
	Level         string        `json:"level,omitempty"`
	Requests      uint64        `json:"requests"`
	Rate          number        `json:"rate"` // per second
	MeanNS        *int64        `json:"mean_ns"`
	ExpectedNS    *int64        `json:"expected_ns"`
	P50NS         *int64        `json:"p50_ns"`
	P99NS         *int64        `json:"p99_ns"`
	CoV           number        `json:"cov"`
	CoVLow        number        `json:"cov_low"`
	CoVHigh       number        `json:"cov_high"`
	Impact        number        `json:"impact"` // ns lost per second
	Edge          *Edge         `json:"edge"`   // the leading one
	Edges         []Edge        `json:"edges"`
	Explanations  []Explanation `json:"explanations"`
	Traces        []Trace       `json:"traces"` // to look at
}

// Edge is the part that a place on the critical path plays.
type Edge struct {
	Name          string   `json:"name"` // short, for people
	Context       []string `json:"context"`
	Before        string   `json:"before,omitempty"`
	After         string   `json:"after,omitempty"`
	Callee        string   `json:"callee,omitempty"`
	MeanNS        number   `json:"mean_ns"`
	ShareMean     number   `json:"share_mean"`
	ShareVariance number   `json:"share_variance"`
	ShareLow      number   `json:"share_low"`
	ShareHigh     number   `json:"share_high"`
	TailLiftNS    number   `json:"tail_lift_ns"`
	ExcessNS      number   `json:"excess_ns"`
	Score         number   `json:"score"`
}

// Explanation is a variable that accounts for part of a problem.
type Explanation struct {
	Name     string   `json:"name"` // for people
	Variable string   `json:"variable"`
	Value    string   `json:"value"`
	Where    []string `json:"where"`
	Effect   number   `json:"effect"`
	Low      number   `json:"low"`
	High     number   `json:"high"`
	PValue   number   `json:"p_value"`
	Remains  number   `json:"remains"`
}

// Trace is a trace to look at.
type Trace struct {
	ID         string `json:"trace_id"`
	DurationNS int64  `json:"duration_ns"`
	Links      []URL  `json:"links"`
}

// URL is a link with the name of what it leads to.
type URL struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Decision is a decision with its evidence.
type Decision struct {
	Plan     int64       `json:"plan"` // version that carries it out
	Strategy string      `json:"strategy,omitempty"`
	From     string      `json:"from,omitempty"` // state of the investigation; empty: it is about none
	To       string      `json:"to,omitempty"`
	Reason   string      `json:"reason"`
	Tree     Tree        `json:"tree"`
	Matches  []Match     `json:"matches"`
	Suspects []Suspect   `json:"suspects"`
	On       []Pick      `json:"on"`
	Off      []Excluded  `json:"off"`
	Rejected []Excluded  `json:"rejected"`
	Missing  []string    `json:"missing"` // operations that have no tracepoint left
	Estimate Usage       `json:"estimate"`
	Budget   Usage       `json:"budget"` // 0: no bound
	Overhead *OverheadOf `json:"overhead"`
}

// Tree says which tree was searched.
type Tree struct {
	Version     uint64 `json:"version"`
	Nodes       int    `json:"nodes"`
	Tracepoints int    `json:"tracepoints"`
}

// Match says where in the tree an edge was looked up.
type Match struct {
	Context   []string   `json:"context"`
	Score     number     `json:"score"`
	Distance  int        `json:"distance"`
	Nodes     [][]string `json:"nodes"`
	RunnersUp []RunnerUp `json:"runners_up"`
}

// RunnerUp is a context that an edge was not matched to.
type RunnerUp struct {
	Context  []string `json:"context"`
	Distance int      `json:"distance"`
}

// Suspect is a place that may be the cause.
type Suspect struct {
	Tracepoint string   `json:"tracepoint,omitempty"` // empty: baseline
	Context    []string `json:"context"`
	Share      number   `json:"share"`
	Low        number   `json:"low"`
	High       number   `json:"high"`
	Requests   uint64   `json:"requests"`
	Open       int      `json:"open"` // tracepoints below it that were not tried
}

// Pick is a tracepoint that was switched on.
type Pick struct {
	Tracepoint string   `json:"tracepoint"`
	Context    []string `json:"context"`
	Score      number   `json:"score"`
	Reason     string   `json:"reason"`
	Cost       Usage    `json:"cost"`
}

// Excluded is a tracepoint that was switched off, or not on, and why.
type Excluded struct {
	Tracepoint string `json:"tracepoint"`
	Reason     string `json:"reason"`
}

// Usage is what tracepoints cost, or may.
type Usage struct {
	Tracepoints int    `json:"tracepoints"`
	Bytes       number `json:"bytes_per_second"`
	CPU         number `json:"cpu"` // cores
}

// OverheadOf is what instrumentation was seen to cost the problem's requests.
type OverheadOf struct {
	Requests uint64 `json:"requests"`
	NS       number `json:"ns"`
	Low      number `json:"low_ns"`
	High     number `json:"high_ns"`
}

// Facts are what an event is made of.
type Facts struct {
	Type   Type
	At     trace.Nanos
	Source string // see Event

	Investigation *search.Investigation // nil: the event is about no problem
	Problem       *detect.Problem       // of the investigation, as last seen; nil: not known
	Decision      *search.Decision      // nil: there was none
	Traces        []Trace               // to look at; of many the first
	Names         *describe.Names       // of what all that is about, with the summary of the problem's requests, if there is one
	URL           string                // of the problem's page; may be empty
}

// Bounds of what an event holds: enough for a decision to be understood, and for a body to be read by anybody.
const (
	mostEdges        = 20
	mostExplanations = 10
	mostMatches      = 5
	mostNodes        = 5 // of one match
	mostTraces       = 9
	mostPicks        = 200
	mostMissing      = 20
	mostContext      = 64   // operations of a context; of more the last
	longestText      = 300  // runes of a name or a text
	longestSentence  = 1500 // runes of a sentence, which holds several
)

// NewEvent returns what happened. Its ID depends on type, time, problem and plan only.
func NewEvent(f *Facts) *Event {
	n := namer{f.Names}
	e := &Event{Type: f.Type, At: moment(f.At), Source: clean(f.Source)}
	if v := f.Investigation; v != nil {
		e.problem, e.resolved = v.Problem, v.Status == search.Gone || f.Type == ProblemClosed
		e.Data.Problem = n.problem(f)
	}
	plan := int64(0)
	if f.Decision != nil {
		plan = f.Decision.Plan
		e.Data.Decision = n.decision(f.Decision)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %d", f.Type, f.At, e.problem, plan))
	e.ID = "evt_" + hex.EncodeToString(sum[:16])
	return e
}

// NewTest returns an event that says that it is none.
func NewTest(at trace.Nanos, source string) *Event {
	e := NewEvent(&Facts{
		Type: Test, At: at, Source: source, Names: describe.New(&trace.Table{}, describe.Verbatim),
		Investigation: &search.Investigation{Problem: analysis.Hash{Lo: 1}, Opened: at},
	})
	p := e.Data.Problem
	p.Service, p.Operation, p.RequestType, p.Diagnosis = "sibyl", "test", "test", "This is a test: nothing is wrong."
	return e
}

// namer puts identities into words that are printable and bounded.
type namer struct{ names *describe.Names }

func (n namer) op(op trace.Op) string { return clean(n.names.Op(op)) }

func (n namer) context(c trace.Context) []string {
	path := n.names.Table.Path(c)
	names := []string{} // not nil: JSON shows it as a list
	for _, op := range path[max(0, len(path)-mostContext):] {
		names = append(names, n.op(op))
	}
	return names
}

func (n namer) tracepoint(s trace.Symbol) string { return clean(n.names.Table.Text(s)) }

func (n namer) problem(f *Facts) *Problem {
	v := f.Investigation
	p := &Problem{
		ID: v.Problem.String(), URL: f.URL, Status: v.Status.String(), Opened: moment(v.Opened),
		RequestType: clean(n.names.RequestType(v.RequestType, v.Entry)), RequestTypeID: v.RequestType.String(), Group: v.Group.String(),
		Service: clean(n.names.Service(v.Entry)), Operation: clean(n.names.OpName(v.Entry)),
		Rate: unknown, CoV: unknown, CoVLow: unknown, CoVHigh: unknown, Impact: unknown,
		Edges: []Edge{}, Explanations: []Explanation{}, Traces: []Trace{},
	}
	if f.Problem != nil {
		n.evidence(p, f.Problem, v)
	}
	p.Traces = append(p.Traces, f.Traces[:min(len(f.Traces), mostTraces)]...)
	return p
}

// evidence fills in what analysis found.
func (n namer) evidence(p *Problem, a *detect.Problem, v *search.Investigation) {
	p.Diagnosis = shorten(n.names.Diagnosis(a, v.Answer()).String(), longestSentence)
	if s := n.names.Summary(a); s != nil {
		p.P50NS, p.P99NS = nanos(s.P50), nanos(s.P99)
	}
	p.Kind, p.Onset, p.Level = a.Kind.String(), a.Onset.String(), a.Level.String()
	p.Requests, p.Rate, p.MeanNS, p.ExpectedNS = a.Requests, number(a.Rate), nanos(a.Mean), nanos(a.Expected)
	p.CoV, p.CoVLow, p.CoVHigh, p.Impact = number(a.CoV), number(a.CoVLow), number(a.CoVHigh), number(a.Impact)
	for i := range a.Edges[:min(len(a.Edges), mostEdges)] {
		p.Edges = append(p.Edges, n.edge(&a.Edges[i]))
	}
	if len(p.Edges) > 0 {
		p.Edge = &p.Edges[0]
	}
	for i := range a.Explanations[:min(len(a.Explanations), mostExplanations)] {
		x := &a.Explanations[i]
		what, where := n.names.Variable(x)
		p.Explanations = append(p.Explanations, Explanation{
			Name: clean(what + where), Variable: clean(x.Variable), Value: clean(x.Value), Where: n.context(x.Where), Effect: number(x.Effect),
			Low: number(x.Low), High: number(x.High), PValue: number(x.PValue), Remains: number(x.Remains),
		})
	}
}

func (n namer) edge(e *group.EdgeShare) Edge {
	return Edge{
		Name: clean(n.names.Edge(e)), Context: n.context(e.Context), Before: n.op(e.Before), After: n.op(e.After), Callee: n.op(e.Callee),
		MeanNS: number(e.Mean), ShareMean: number(e.ShareMean), ShareVariance: number(e.ShareVariance),
		ShareLow: number(e.ShareLow), ShareHigh: number(e.ShareHigh), TailLiftNS: number(e.TailLift), ExcessNS: number(e.Excess),
		Score: number(e.Score),
	}
}

func (n namer) decision(d *search.Decision) *Decision {
	out := &Decision{
		Plan: d.Plan, Strategy: d.Strategy, Reason: clean(d.Reason),
		Tree:    Tree{d.Tree.Version, d.Tree.Nodes, d.Tree.Tracepoints},
		Matches: []Match{}, Suspects: []Suspect{}, On: []Pick{}, Off: []Excluded{}, Rejected: []Excluded{}, Missing: []string{},
		Estimate: usage(d.Estimate), Budget: Usage{d.Budget.Tracepoints, number(d.Budget.Bytes), number(d.Budget.CPU)},
	}
	if !d.Investigation.IsZero() {
		out.From, out.To = d.From.String(), d.To.String()
	}
	for i := range d.Matches[:min(len(d.Matches), mostMatches)] {
		out.Matches = append(out.Matches, n.match(&d.Matches[i]))
	}
	for i := range d.Suspects {
		s := &d.Suspects[i]
		out.Suspects = append(out.Suspects, Suspect{
			n.tracepoint(s.Tracepoint), n.context(s.Context), number(s.Share), number(s.Low), number(s.High), s.Requests, s.Open,
		})
	}
	for i := range d.Picks[:min(len(d.Picks), mostPicks)] {
		k := &d.Picks[i]
		out.On = append(out.On, Pick{n.tracepoint(k.Tracepoint), n.context(k.Context), number(k.Score), clean(k.Reason), usage(k.Cost)})
	}
	for _, x := range d.Off[:min(len(d.Off), mostPicks)] {
		out.Off = append(out.Off, Excluded{n.tracepoint(x.Tracepoint), x.Reason})
	}
	for _, x := range d.Rejected {
		out.Rejected = append(out.Rejected, Excluded{n.tracepoint(x.Tracepoint), x.Reason})
	}
	for _, op := range d.Missing[:min(len(d.Missing), mostMissing)] {
		out.Missing = append(out.Missing, n.op(op))
	}
	if o := d.Overhead; o.Requests > 0 {
		out.Overhead = &OverheadOf{o.Requests, number(o.Nanos), number(o.Low), number(o.High)}
	}
	return out
}

func (n namer) match(m *search.Matched) Match {
	out := Match{Context: n.context(m.Context), Score: number(m.Score), Distance: m.Distance, Nodes: [][]string{}, RunnersUp: []RunnerUp{}}
	for _, c := range m.Nodes[:min(len(m.Nodes), mostNodes)] {
		out.Nodes = append(out.Nodes, n.context(c))
	}
	for _, r := range m.RunnersUp[:min(len(m.RunnersUp), mostNodes)] {
		out.RunnersUp = append(out.RunnersUp, RunnerUp{n.context(r.Context), r.Distance})
	}
	return out
}

func usage(u search.Usage) Usage { return Usage{u.Tracepoints, number(u.Bytes), number(u.CPU)} }

// nanos returns d, or nil where it is not known.
func nanos(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ns := d.Nanoseconds()
	return &ns
}

// clean returns s without what cannot be printed, and not too long: it may come from a trace.
func clean(s string) string { return shorten(s, longestText) }

// shorten is clean for another bound, in runes.
func shorten(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// number is a float64 that JSON shows as null where it is not a number.
type number float64

var unknown = number(math.NaN())

// MarshalJSON implements json.Marshaler.
func (x number) MarshalJSON() ([]byte, error) {
	if !x.known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

func (x number) known() bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// moment is a time that JSON shows as in RFC 3339.
type moment trace.Nanos

// MarshalJSON implements json.Marshaler.
func (t moment) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// String returns t as in RFC 3339, in UTC.
func (t moment) String() string { return t.time().Format(time.RFC3339Nano) }

func (t moment) time() time.Time { return time.Unix(0, int64(t)).UTC() }
