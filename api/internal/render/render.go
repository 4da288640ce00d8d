// Package render converts the state of the engine to the types of the contract, with names instead of IDs.
package render

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Annotation converts an annotation to the type of the contract.
func Annotation(names *trace.Table, x *engine.Annotation) contract.Annotation {
	return contract.Annotation{
		ID:      Hex16(x.ID),
		At:      At(x.At),
		End:     Instant(x.End),
		Kind:    contract.AnnotationKind(x.Kind.String()),
		Source:  contract.AnnotationSource(x.Source.String()),
		Service: names.Text(x.Service),
		Version: names.Text(x.Version),
		Before:  names.Text(x.Before),
		Text:    x.Text,
		Title:   describe.AnnotationTitle(names.Text, x),
		Link:    x.Link,
		Tags:    append([]string{}, x.Tags...),
	}
}

// Annotations converts annotations, oldest first, to the type of the contract, latest first.
func Annotations(names *trace.Table, all []engine.Annotation) []contract.Annotation {
	list := []contract.Annotation{}
	for _, x := range slices.Backward(all) {
		list = append(list, Annotation(names, &x))
	}
	return list
}

// IncidentDigits is the length of an incident ID.
const IncidentDigits = 16

// ParseIncident parses an incident ID returned by Hex16.
func ParseIncident(id string) (uint64, error) { return strconv.ParseUint(id, 16, 64) }

// Number returns x, or nil if x is unknown. JSON encodes nil as null.
func Number(x float64) *float64 { return describe.Number(x).Pointer() }

// Interval returns a value with its confidence interval.
func Interval(value, low, high float64) contract.Interval {
	return IntervalOf(describe.Number(value), describe.Number(low), describe.Number(high))
}

// IntervalOf is like [Interval], but takes numbers from package describe.
func IntervalOf(value, low, high describe.Number) contract.Interval {
	return contract.Interval{Value: value.Pointer(), Low: low.Pointer(), High: high.Pointer()}
}

// Instant returns t, or nil if t is 0.
func Instant(t trace.Nanos) *time.Time {
	if t == 0 {
		return nil
	}
	return new(At(t))
}

// At returns t as a time.
func At(t trace.Nanos) time.Time { return time.Unix(0, int64(t)).UTC() }

// Hex16 returns a 64-bit ID as 16 hexadecimal digits, or "" if it is 0.
func Hex16[T ~uint64](x T) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(x))
}

// EdgeID returns the ID of an edge as 16 hexadecimal digits. The ID of the remainder is all zeros.
func EdgeID(e trace.Edge) string { return fmt.Sprintf("%016x", uint64(e)) }

// problemID returns the ID of a problem as text, or "" if it is zero.
func problemID(h analysis.Hash) string {
	if h.IsZero() {
		return ""
	}
	return h.String()
}

// Subject returns the ID of s, which is a problem or an incident. The other result is empty or nil; both are if s is
// zero.
func Subject(s search.Subject) (problem string, incident *string) {
	if s.Kind == search.IncidentSubject {
		return "", new(s.String())
	}
	return problemID(s.ID), nil
}

// Renderer converts the state of a core to the types of the contract. It must not be used after [epoch.Engine.Ask] has
// returned.
type Renderer struct {
	*describe.Names
	Core *engine.View
}

// New returns a renderer of c that uses the given names.
func New(names *describe.Names, c *engine.View) Renderer { return Renderer{names, c} }

// Path returns the operations on the path down to a calling context. If the path leads through tracepoints that were
// never on together, the dictionary lacks the context, and the path comes from t, which may be nil.
func (r Renderer) Path(t *cct.Tree, ctx trace.Context) []string {
	path := r.Context(ctx)
	if len(path) > 0 || ctx == 0 || t == nil {
		return path
	}
	if i := t.Find(ctx); i >= 0 {
		return r.Operations(t.Path(i))
	}
	return path
}

// Tree returns the tree that the search uses for a subject: the incident's own tree, or the tree of requestType for a
// problem. It returns nil if there is no such tree.
func (r Renderer) Tree(subject search.Subject, requestType analysis.Hash) *cct.Tree {
	if id, about := subject.Incident(); about {
		return r.Core.Searches.Tree(id)
	}
	t, _ := r.Core.Trees.Built(requestType)
	return t
}

// Tracepoint returns the name of a tracepoint, or its ID if the name is unknown.
func (r Renderer) Tracepoint(tp trace.Symbol) string {
	if name := r.Table.Text(tp); name != "" && name != trace.Overflow {
		return name
	}
	return Hex16(tp)
}

// Optional returns s, or nil if s is empty.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Place converts a place to the type of the contract.
func Place(p *describe.Place) contract.Place {
	return contract.Place{
		Edge:      EdgeID(p.Edge),
		Label:     p.Name,
		Context:   p.Context,
		Service:   p.Service,
		Operation: p.Operation,
		Kind:      p.Kind,
		Before:    Optional(p.Before),
		After:     Optional(p.After),
		Target:    Target(p.Target),
	}
}

// Target converts a target to the type of the contract. It returns nil for nil.
func Target(t *describe.Target) *contract.Target {
	if t == nil {
		return nil
	}
	return &contract.Target{Service: t.Service, Operation: t.Operation, External: t.External}
}

// EdgePlace returns the place of an edge without its statistics.
func (r Renderer) EdgePlace(e trace.Edge) contract.Place {
	return Place(new(describe.PlaceOf(r.Names, e)))
}

// Edges converts edges and their shares to the type of the contract.
func (r Renderer) Edges(edges []group.EdgeShare) []contract.Edge {
	all := make([]contract.Edge, 0, len(edges))
	for _, e := range describe.ProblemEdges(r.Names, edges) {
		all = append(all, contract.Edge{
			Place:         Place(&e.Place),
			MeanNs:        e.MeanNS.Pointer(),
			ShareMean:     e.ShareMean.Pointer(),
			ShareVariance: IntervalOf(e.ShareVariance, e.ShareLow, e.ShareHigh),
			TailLiftNs:    e.TailLiftNS.Pointer(),
			ExcessNs:      IntervalOf(e.ExcessNS, e.ExcessLowNS, e.ExcessHighNS),
			Affected:      e.Affected.Pointer(),
			Score:         e.Score.Pointer(),
		})
	}
	return all
}

// Explained converts the explanations of a problem to the type of the contract.
func (r Renderer) Explained(list []detect.Explanation) []contract.Explanation {
	all := make([]contract.Explanation, 0, len(list))
	for _, x := range describe.Explanations(r.Names, list, nil) {
		all = append(all, contract.Explanation{
			Variable:  x.Variable,
			Value:     x.Value,
			Where:     x.Where,
			Target:    Hex16(x.TargetEdge),
			Effect:    IntervalOf(x.Effect, x.Low, x.High),
			PValue:    x.PValue.Pointer(),
			Remains:   x.Remains.Pointer(),
			Text:      x.Name,
			TextParts: Sentence(r.Names, x.Sentence),
		})
	}
	return all
}

func (r Renderer) suspects(t *cct.Tree, list []search.Suspect) []contract.Suspect {
	all := make([]contract.Suspect, 0, len(list))
	for i := range list {
		x := &list[i]
		all = append(all, contract.Suspect{
			Tracepoint: r.Tracepoint(x.Tracepoint),
			Operation:  r.Op(x.Op),
			Context:    r.Path(t, x.Context),
			Share:      Interval(x.Share, x.Low, x.High),
			Inclusive:  Number(x.Inclusive),
			Requests:   int64(x.Requests),
			Open:       x.Open,
		})
	}
	return all
}

// Operations returns the names of operations.
func (r Renderer) Operations(ops []trace.Op) []string {
	all := make([]string, 0, len(ops))
	for _, op := range ops {
		all = append(all, r.Op(op))
	}
	return all
}

// Investigation converts an investigation to the type of the contract, with at most the given number of suspects.
func (r Renderer) Investigation(v *search.Investigation, suspects int) contract.Investigation {
	x := contract.Investigation{
		State: contract.State(v.Status.String()), Reason: v.Reason, Strategy: v.Strategy,
		Opened: At(v.Opened), Changed: At(v.Changed), Epochs: v.Epochs, On: len(v.Requested), Tried: len(v.Tried),
		Suspects: r.suspects(r.Tree(v.Subject, v.RequestType), v.Suspects[:min(len(v.Suspects), suspects)]),
	}
	x.Steering = Steering(r.Core.Searches.State().Steering(v.Subject))
	if x.Problem, x.Incident = Subject(v.Subject); x.Incident == nil {
		x.RequestType, x.RequestTypeName = v.RequestType.String(), r.RequestType(v.RequestType, v.Entry)
		x.Group = v.Group.String()
	}
	return x
}

// Steering converts x to the type of the contract; nil stays nil.
func Steering(x *search.Steering) *contract.Steering {
	if x == nil {
		return nil
	}
	kind := contract.SteeringKindStart
	if x.Ended {
		kind = contract.SteeringKindEnd
	}
	return &contract.Steering{Kind: kind, By: x.By, Until: At(x.Until), Reason: x.Reason}
}

// shownEvidence limits the number of pieces of evidence shown for an investigation.
const shownEvidence = 200

// InvestigationDetail converts an investigation, including its evidence, to the type of the contract.
func (r Renderer) InvestigationDetail(v *search.Investigation) *contract.InvestigationDetail {
	d := &contract.InvestigationDetail{
		Investigation: r.Investigation(v, len(v.Suspects)), EvidenceTotal: len(v.Evidence),
		Requested: make([]contract.RequestedTracepoint, 0, len(v.Requested)), Evidence: []contract.Evidence{},
	}
	for i := range v.Requested {
		q := &v.Requested[i]
		d.Requested = append(d.Requested, contract.RequestedTracepoint{
			Tracepoint: r.Tracepoint(q.Tracepoint), Since: At(q.Since), Value: Number(q.Value), Cause: q.Cause,
		})
	}
	evidence := slices.Clone(v.Evidence)
	sorting.SliceStable(evidence, func(a, b search.Evidence) int { return query.CompareKeys(-a.Share, -b.Share) })
	for i := range evidence[:min(len(evidence), shownEvidence)] {
		e := &evidence[i]
		d.Evidence = append(d.Evidence, contract.Evidence{
			Tracepoint: r.Tracepoint(e.Tracepoint),
			Operation:  r.Op(e.Op),
			Within:     Hex16(e.Within),
			Context:    r.Context(e.Context),
			Requests:   int64(e.N),
			Share:      Interval(e.Share, e.Low, e.High),
			MeanShare:  Number(e.Mean),
		})
	}
	return d
}

// Usage converts the cost of tracepoints to the type of the contract.
func Usage(u search.Usage) contract.Usage {
	return contract.Usage{Tracepoints: u.Tracepoints, Hits: Number(u.Hits), Bytes: Number(u.Bytes), CPU: Number(u.CPU)}
}

// Limit converts a budget to the type of the contract.
func Limit(tracepoints int, bytes, cpu float64) contract.Limit {
	return contract.Limit{Tracepoints: tracepoints, Bytes: bytes, CPU: cpu}
}

// armNames returns the names of the arms in a mask.
func armNames(mask uint32) []string {
	names := []string{}
	for i, name := range search.ArmNames {
		if mask&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Decision converts a decision to the type of the contract.
func (r Renderer) Decision(logged *decisionlog.Logged) contract.Decision {
	d := logged.Decision
	problem, incident := Subject(d.Subject)
	tree := r.Tree(d.Subject, d.Group.RequestType)
	x := contract.Decision{
		ID:       logged.ID.String(),
		At:       At(d.At),
		Plan:     d.Plan,
		Problem:  problem,
		Incident: incident,
		Strategy: d.Strategy,
		From:     contract.State(d.From.String()),
		To:       contract.State(d.To.String()),
		Reason:   d.Reason,
		Text:     r.decisionText(d),
		Requests: int64(d.Group.Requests),
		Rate:     Number(d.Group.Rate),
		Cov:      Number(d.Group.CoV),
		Tree: contract.SearchedTree{
			Version: fmt.Sprintf("%016x", d.Tree.Version), Nodes: d.Tree.Nodes, Tracepoints: d.Tree.Tracepoints,
		},
		Matches:  make([]contract.DecisionMatch, 0, len(d.Matches)),
		Suspects: r.suspects(tree, d.Suspects),
		Picks:    r.picks(tree, d.Picks),
		Rejected: make([]contract.Judged, 0, len(d.Rejected)),
		Off:      make([]contract.Judged, 0, len(d.Off)),
		Missing:  r.Operations(d.Missing),
		Estimate: Usage(d.Estimate),
		Limit:    Limit(d.Budget.Tracepoints, d.Budget.Bytes, d.Budget.CPU),
	}
	for i := range d.Matches {
		x.Matches = append(x.Matches, r.match(&d.Matches[i]))
	}
	for _, j := range d.Rejected {
		x.Rejected = append(x.Rejected, r.judged(j.Tracepoint, j.Reason))
	}
	for _, j := range d.Off {
		x.Off = append(x.Off, r.judged(j.Tracepoint, j.Reason))
	}
	if d.Overhead.Requests > 0 {
		x.Overhead = &contract.Overhead{MeanNs: Interval(d.Overhead.Nanos, d.Overhead.Low, d.Overhead.High)}
	}
	return x
}

func (r Renderer) judged(tracepoint trace.Symbol, reason string) contract.Judged {
	return contract.Judged{Tracepoint: Hex16(tracepoint), TracepointName: r.Tracepoint(tracepoint), Reason: reason}
}

func (r Renderer) match(m *search.Matched) contract.DecisionMatch {
	x := contract.DecisionMatch{
		Context:   r.Context(m.Context),
		Score:     Number(m.Score),
		Nodes:     make([]string, 0, len(m.Nodes)),
		Distance:  m.Distance,
		RunnersUp: make([]contract.DecisionRunnerUp, 0, len(m.RunnersUp)),
	}
	for _, n := range m.Nodes {
		x.Nodes = append(x.Nodes, Hex16(n))
	}
	for _, n := range m.RunnersUp {
		x.RunnersUp = append(x.RunnersUp,
			contract.DecisionRunnerUp{Context: r.Context(n.Context), Distance: n.Distance})
	}
	return x
}

func (r Renderer) picks(t *cct.Tree, picks []search.Pick) []contract.Pick {
	all := make([]contract.Pick, 0, len(picks))
	for i := range picks {
		p := &picks[i]
		all = append(all, contract.Pick{
			Tracepoint:     Hex16(p.Tracepoint),
			TracepointName: r.Tracepoint(p.Tracepoint),
			Operation:      r.Op(p.Op),
			Context:        r.Path(t, p.Context),
			Score:          Number(p.Score),
			Arms:           armNames(p.Arms),
			Cost:           Usage(p.Cost),
			Reason:         p.Reason,
		})
	}
	return all
}

// decisionText describes a decision in one sentence.
func (r Renderer) decisionText(d *search.Decision) string {
	text := ""
	if d.From != d.To {
		text = d.From.String() + " → " + d.To.String()
	}
	add := func(s string) {
		if text != "" {
			text += "; "
		}
		text += s
	}
	if n := len(d.Picks); n > 0 {
		add(units.Plural(n, "tracepoint") + " on: " + r.pickName(&d.Picks[0]) + andMore(n))
	}
	if n := len(d.Off); n > 0 {
		add(units.Plural(n, "tracepoint") + " off")
	}
	if d.Reason != "" {
		add(d.Reason)
	}
	return text
}

// pickName returns the operation of a pick, or the name of the tracepoint if the search doesn't know the operation, for
// example because the tracepoint has an override.
func (r Renderer) pickName(p *search.Pick) string {
	if p.Op != 0 {
		return r.Op(p.Op)
	}
	return r.Tracepoint(p.Tracepoint)
}

func andMore(n int) string {
	if n < 2 {
		return ""
	}
	return " and " + strconv.Itoa(n-1) + " more"
}

// Remaining returns the remaining time d in nanoseconds, or nil if no time is left.
func Remaining(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	return new(d.Nanoseconds())
}

// Wholes maps the quantity that a problem's shares are relative to, a detect.Whole, to its name in the contract.
var Wholes = [...]contract.ProblemShareOf{
	detect.WholeSlowdown: contract.ProblemShareOfSlowdown,
	detect.WholeVariance: contract.ProblemShareOfVariance,
	detect.WholeMean:     contract.ProblemShareOfMean,
}
