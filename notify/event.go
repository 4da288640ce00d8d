package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Type is the type of an event.
type Type string

// The types of events.
const (
	IncidentOpened  Type = "incident.opened"
	IncidentLocated Type = "incident.located" // its investigation found one place, or up to three together
	IncidentClosed  Type = "incident.closed"
	// IncidentAcknowledged means that a person is working on the incident.
	IncidentAcknowledged Type = "incident.acknowledged"
	// IncidentSteady means that the incident has not changed for a day. The event proposes to accept it as normal.
	IncidentSteady   Type = "incident.steady"
	ProblemOpened    Type = "problem.opened"
	ProblemLocated   Type = "problem.located"   // the investigation found one place, or up to three together
	ProblemExplained Type = "problem.explained" // an attribute also accounts for it
	ProblemClosed    Type = "problem.closed"
	Decided          Type = "decision" // the plan or an investigation's state changed
	Test             Type = "test"     // sent on request, to check an endpoint
)

// Event is an event with its evidence. Its texts are printable and limited in length, but not escaped. It is immutable.
type Event struct {
	ID       string         `json:"id"` // equal for equal events, see NewEvent
	Type     Type           `json:"type"`
	At       moment         `json:"timestamp"`
	Source   string         `json:"source"` // the address of the UI, or a name
	Data     Data           `json:"data"`
	subject  search.Subject // the incident or problem; zero if about neither
	resolved bool           // the incident or problem is closed
	muted    bool           // send only ends and acknowledgements, and only to endpoints that keep state
	// Set if e is about an incident: the configured owners, and the owner of the service that was the first suspect
	// when the incident opened. Both may be nil.
	directory *directory.Directory
	owner     *directory.Owner
}

// Data is the subject of an event. Fractions are from 0 to 1, durations are in nanoseconds, and contexts are lists of
// "service operation" from the root down. Numbers are null if unknown.
type Data struct {
	Incident *Incident `json:"incident"` // may be null
	Problem  *Problem  `json:"problem"`  // may be null
	Decision *Decision `json:"decision"` // may be null
}

// Problem is a problem as of the last epoch. Its lists are limited in length.
type Problem struct {
	describe.Problem
	describe.Findings

	URL    string  `json:"url,omitempty"` // its page
	Status string  `json:"status"`        // of its investigation, or "none"; its incident's investigation doesn't count
	Opened moment  `json:"opened"`
	Traces []Trace `json:"traces"` // samples
}

// Trace is a sample trace.
type Trace struct {
	ID         string          `json:"trace_id"`
	DurationNS int64           `json:"duration_ns"`
	Failed     bool            `json:"failed,omitempty"` // chosen because its request failed
	Links      []directory.URL `json:"links"`
}

// Decision is a decision with its evidence.
type Decision struct {
	Plan     int64       `json:"plan"` // version of the resulting plan
	Strategy string      `json:"strategy,omitempty"`
	From     string      `json:"from,omitempty"` // state of the investigation; empty without an investigation
	To       string      `json:"to,omitempty"`
	Reason   string      `json:"reason"`
	Tree     Tree        `json:"tree"`
	Matches  []Match     `json:"matches"`
	Suspects []Suspect   `json:"suspects"`
	On       []Pick      `json:"on"`
	Off      []Excluded  `json:"off"`
	Rejected []Excluded  `json:"rejected"`
	Missing  []string    `json:"missing"` // operations without a remaining tracepoint
	Estimate Usage       `json:"estimate"`
	Budget   Usage       `json:"budget"` // 0 is unlimited
	Overhead *OverheadOf `json:"overhead"`
}

// Tree identifies the tree that was searched.
type Tree struct {
	Version     uint64 `json:"version"`
	Nodes       int    `json:"nodes"`
	Tracepoints int    `json:"tracepoints"`
}

// Match is an edge with the nodes of the tree that it was matched to.
type Match struct {
	Context   []string        `json:"context"`
	Score     describe.Number `json:"score"`
	Distance  int             `json:"distance"`
	Nodes     [][]string      `json:"nodes"`
	RunnersUp []RunnerUp      `json:"runners_up"`
}

// RunnerUp is a context that an edge was not matched to.
type RunnerUp struct {
	Context  []string `json:"context"`
	Distance int      `json:"distance"`
}

// Suspect is a location that may be the cause.
type Suspect struct {
	Tracepoint string          `json:"tracepoint,omitempty"` // empty for the baseline
	Context    []string        `json:"context"`
	Share      describe.Number `json:"share"`
	Low        describe.Number `json:"low"`
	High       describe.Number `json:"high"`
	Requests   uint64          `json:"requests"`
	Open       int             `json:"open"` // untried tracepoints below it
}

// Pick is a tracepoint that was enabled.
type Pick struct {
	Tracepoint string          `json:"tracepoint"`
	Context    []string        `json:"context"`
	Score      describe.Number `json:"score"`
	Reason     string          `json:"reason"`
	Cost       Usage           `json:"cost"`
}

// Excluded is a tracepoint that was disabled or not enabled, with the reason.
type Excluded struct {
	Tracepoint string `json:"tracepoint"`
	Reason     string `json:"reason"`
}

// Usage is the cost of tracepoints, or its limit.
type Usage struct {
	Tracepoints int             `json:"tracepoints"`
	Bytes       describe.Number `json:"bytes_per_second"`
	CPU         describe.Number `json:"cpu"` // cores
}

// OverheadOf is the measured cost of instrumentation for the problem's requests.
type OverheadOf struct {
	Requests uint64          `json:"requests"`
	NS       describe.Number `json:"ns"`
	Low      describe.Number `json:"low_ns"`
	High     describe.Number `json:"high_ns"`
}

// Facts are the input of an event.
type Facts struct {
	Type   Type
	At     trace.Nanos
	Source string // see Event

	// The problem and its investigation. After the problem has closed, only the investigation is known. If the problem
	// has not been investigated, only Problem is set. Both are nil if the event is about neither.
	Problem       *detect.Problem
	Investigation *search.Investigation
	Decision      *search.Decision // may be nil
	Traces        []Trace          // samples; the first are sent
	Names         *describe.Names  // includes the summary of the problem's requests, if there is one
	URL           string           // of the problem's page; may be empty
}

// Limits on an event. They are high enough to understand a decision, and low enough for any receiver.
const (
	maxEdges        = 20
	maxExplanations = 10
	maxMatches      = 5
	maxNodes        = 5 // of one match
	maxTraces       = 9
	maxPicks        = 200
	maxMissing      = 20
	maxContext      = 64   // operations of a context; the last ones are kept
	maxSentenceText = 1500 // runes of a sentence, which contains several names
)

// NewEvent returns the event about a problem or a decision that f describes. The event's ID depends only on type, time,
// problem and plan, so creating the event again gives the same ID.
func NewEvent(f *Facts) *Event {
	n := namer{f.Names}
	e := &Event{Type: f.Type, At: moment(f.At), Source: trace.Clean(f.Source)}
	if f.aboutProblem() {
		e.subject, e.resolved = f.subject(), f.closed()
		e.Data.Problem = n.problem(f)
	}
	plan := int64(0)
	if f.Decision != nil {
		plan = f.Decision.Plan
		e.Data.Decision = n.decision(f.Decision)
	}
	e.setID(plan)
	return e
}

func (f *Facts) aboutProblem() bool { return f.Problem != nil || f.Investigation != nil }

// subject returns the identity of the problem.
func (f *Facts) subject() search.Subject {
	if f.Problem != nil {
		return search.OfProblem(f.Problem.ID)
	}
	return f.Investigation.Subject
}

// closed reports whether the problem is closed.
func (f *Facts) closed() bool {
	return f.Type == ProblemClosed || f.Problem == nil && f.Investigation.Status == search.Gone
}

// status returns the status of the problem's investigation. It returns "none" for an open problem if its incident is
// investigated instead.
func (f *Facts) status() string {
	switch {
	case f.closed():
		return search.Gone.String()
	case f.Investigation == nil || f.Investigation.Status == search.Gone:
		return "none"
	}
	return f.Investigation.Status.String()
}

// opened returns the time when the problem opened. If that is unknown, as for chronic problems, it returns the time
// when the investigation opened, or the time of the event if there is no investigation.
func (f *Facts) opened() trace.Nanos {
	switch {
	case f.Problem != nil && f.Problem.Opened != 0:
		return f.Problem.Opened
	case f.Investigation != nil:
		return f.Investigation.Opened
	}
	return f.At
}

// routedTo reports whether e is sent to an endpoint. If owners route incidents to the endpoint, it receives only
// incidents of those owners; otherwise, it receives everything. All events of an incident take the same route, even if
// its suspects change.
func (e *Event) routedTo(endpoint string) bool {
	if e.directory == nil || !e.directory.IsRouted(endpoint) {
		return true
	}
	return e.owner != nil && slices.Contains(e.owner.Route, endpoint)
}

// setID sets the ID, which depends only on the event's type, time and subject, and on plan.
func (e *Event) setID(plan int64) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %d", e.Type, trace.Nanos(e.At), e.subject, plan))
	e.ID = "evt_" + hex.EncodeToString(sum[:16])
}

// NewTest returns a test event, which looks like an event about a problem.
func NewTest(at trace.Nanos, source string) *Event {
	e := NewEvent(&Facts{
		Type:          Test,
		At:            at,
		Source:        source,
		Names:         describe.New(&trace.Table{}, describe.Verbatim),
		Investigation: &search.Investigation{Subject: search.OfProblem(analysis.Hash{Lo: 1}), Opened: at},
	})
	p := e.Data.Problem
	p.Service, p.Operation, p.RequestType, p.Diagnosis = "sibyl", "test", "test", "This is a test: there is no problem."
	return e
}

// namer translates identities into names that are printable and limited in length.
type namer struct{ names *describe.Names }

func (n namer) op(op trace.Op) string { return trace.Clean(n.names.Op(op)) }

func (n namer) context(c trace.Context) []string { return boundContext(n.names.Context(c)) }

func (n namer) text(s trace.Symbol) string { return trace.Clean(n.names.Table.Text(s)) }

func (n namer) problem(f *Facts) *Problem {
	v := f.Investigation
	p := &Problem{URL: f.URL, Status: f.status(), Opened: moment(f.opened()), Traces: []Trace{}}
	p.Findings = describe.Findings{Edges: []describe.ProblemEdge{}, Explanations: []describe.Explanation{}}
	if f.Problem == nil {
		p.Problem = describe.IdentifyProblem(n.names, v.Subject.ID, v.RequestType, v.Group, v.Entry)
	} else {
		p.Problem, p.Findings = describe.NewProblem(n.names, f.Problem, v.Answer(), v.AnswerShare()),
			describe.NewFindings(n.names, f.Problem)
	}
	p.bound()
	p.Traces = append(p.Traces, f.Traces[:min(len(f.Traces), maxTraces)]...)
	return p
}

// bound shortens the lists and texts of p, and makes the texts printable.
func (p *Problem) bound() {
	cleanAll(&p.RequestType, &p.Service, &p.Operation)
	p.Diagnosis = trace.Printable(p.Diagnosis, maxSentenceText)
	p.Edges = p.Edges[:min(len(p.Edges), maxEdges)]
	for i := range p.Edges {
		boundPlace(&p.Edges[i].Place)
	}
	p.Explanations = p.Explanations[:min(len(p.Explanations), maxExplanations)]
	for i := range p.Explanations {
		x := &p.Explanations[i]
		cleanAll(&x.Name, &x.Variable, &x.Value)
		x.Where = boundContext(x.Where)
		if x.Target != nil {
			boundPlace(x.Target)
		}
	}
}

func boundPlace(p *describe.Place) {
	cleanAll(&p.Name, &p.Service, &p.Operation, &p.Before, &p.After)
	p.Target = boundTarget(p.Target)
	p.Context = boundContext(p.Context)
}

func boundTarget(t *describe.Target) *describe.Target {
	if t == nil {
		return nil
	}
	return &describe.Target{Service: trace.Clean(t.Service), Operation: trace.Clean(t.Operation), External: t.External}
}

// boundContext returns the last maxContext operations of path. It makes them printable and limits their lengths, in
// place.
func boundContext(path []string) []string {
	path = path[max(0, len(path)-maxContext):]
	for i := range path {
		cleanAll(&path[i])
	}
	return path
}

func cleanAll(texts ...*string) {
	for _, s := range texts {
		*s = trace.Clean(*s)
	}
}

func (n namer) decision(d *search.Decision) *Decision {
	out := &Decision{
		Plan:     d.Plan,
		Strategy: d.Strategy,
		Reason:   trace.Clean(d.Reason),
		Tree:     Tree{d.Tree.Version, d.Tree.Nodes, d.Tree.Tracepoints},
		Matches:  []Match{},
		On:       []Pick{},
		Off:      []Excluded{},
		Rejected: []Excluded{},
		Missing:  []string{},
		Estimate: usage(d.Estimate),
		Budget:   Usage{d.Budget.Tracepoints, describe.Number(d.Budget.Bytes), describe.Number(d.Budget.CPU)},
	}
	if !d.Subject.IsZero() {
		out.From, out.To = d.From.String(), d.To.String()
	}
	for i := range d.Matches[:min(len(d.Matches), maxMatches)] {
		out.Matches = append(out.Matches, n.match(&d.Matches[i]))
	}
	out.Suspects = n.suspects(d.Suspects)
	for i := range d.Picks[:min(len(d.Picks), maxPicks)] {
		k := &d.Picks[i]
		out.On = append(out.On, Pick{
			n.text(k.Tracepoint), n.context(k.Context), describe.Number(k.Score),
			trace.Clean(k.Reason), usage(k.Cost),
		})
	}
	for _, x := range d.Off[:min(len(d.Off), maxPicks)] {
		out.Off = append(out.Off, Excluded{n.text(x.Tracepoint), x.Reason})
	}
	for _, x := range d.Rejected {
		out.Rejected = append(out.Rejected, Excluded{n.text(x.Tracepoint), x.Reason})
	}
	for _, op := range d.Missing[:min(len(d.Missing), maxMissing)] {
		out.Missing = append(out.Missing, n.op(op))
	}
	if o := d.Overhead; o.Requests > 0 {
		out.Overhead = &OverheadOf{
			o.Requests, describe.Number(o.Nanos), describe.Number(o.Low), describe.Number(o.High),
		}
	}
	return out
}

func (n namer) suspects(list []search.Suspect) []Suspect {
	all := make([]Suspect, 0, len(list))
	for i := range list {
		s := &list[i]
		all = append(all, Suspect{
			n.text(s.Tracepoint), n.context(s.Context), describe.Number(s.Share), describe.Number(s.Low),
			describe.Number(s.High), s.Requests, s.Open,
		})
	}
	return all
}

func (n namer) match(m *search.Matched) Match {
	out := Match{
		Context:   n.context(m.Context),
		Score:     describe.Number(m.Score),
		Distance:  m.Distance,
		Nodes:     [][]string{},
		RunnersUp: []RunnerUp{},
	}
	for _, c := range m.Nodes[:min(len(m.Nodes), maxNodes)] {
		out.Nodes = append(out.Nodes, n.context(c))
	}
	for _, r := range m.RunnersUp[:min(len(m.RunnersUp), maxNodes)] {
		out.RunnersUp = append(out.RunnersUp, RunnerUp{n.context(r.Context), r.Distance})
	}
	return out
}

func usage(u search.Usage) Usage {
	return Usage{u.Tracepoints, describe.Number(u.Bytes), describe.Number(u.CPU)}
}

// moment is a time that is encoded in JSON as RFC 3339.
type moment trace.Nanos

// MarshalJSON implements json.Marshaler.
func (t moment) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// String returns t in RFC 3339, in UTC.
func (t moment) String() string { return t.time().Format(time.RFC3339Nano) }

func (t moment) time() time.Time { return time.Unix(0, int64(t)).UTC() }
