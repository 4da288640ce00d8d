package api

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// number returns x; nil, which JSON encodes as null, if it is unknown.
func number(x float64) *float64 { return describe.Number(x).Pointer() }

func interval(value, low, high float64) contract.Interval {
	return intervalOf(describe.Number(value), describe.Number(low), describe.Number(high))
}

func intervalOf(value, low, high describe.Number) contract.Interval {
	return contract.Interval{Value: value.Pointer(), Low: low.Pointer(), High: high.Pointer()}
}

// instant returns t; nil if it is 0.
func instant(t trace.Nanos) *time.Time {
	if t == 0 {
		return nil
	}
	return new(at(t))
}

func at(t trace.Nanos) time.Time { return time.Unix(0, int64(t)).UTC() }

// hex16 returns a 64-bit identity as text; "" if it is 0.
func hex16[T ~uint64](x T) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(x))
}

// edgeID returns the identity of an edge as text; zeros for the remainder.
func edgeID(e trace.Edge) string { return fmt.Sprintf("%016x", uint64(e)) }

// problemID returns the identity of a problem as text; "" if it is zero.
func problemID(h analysis.Hash) string {
	if h.IsZero() {
		return ""
	}
	return h.String()
}

// subjectOf returns the identity of a problem or that of an incident; the other is empty. Both are if s is zero.
func subjectOf(s search.Subject) (problem string, incident *string) {
	if s.Kind == search.IncidentSubject {
		return "", new(s.String())
	}
	return problemID(s.ID), nil
}

// renderer converts the state of a core to the types of the contract. It must not be used when [Engine.Ask] has
// returned.
type renderer struct {
	*describe.Names
	core *engine.View
}

// renderer returns a renderer of c, within a call of [Engine.Ask].
func (a *API) renderer(c *engine.View) renderer { return renderer{a.refresh(c).names(c), c} }

// path returns the operations down to a calling context in a tree, which may be nil. A context is missing in the
// dictionary if it leads over tracepoints that were never on together; its path comes from the tree.
func (r renderer) path(t *cct.Tree, ctx trace.Context) []string {
	path := r.Context(ctx)
	if len(path) > 0 || ctx == 0 || t == nil {
		return path
	}
	if i := t.Find(ctx); i >= 0 {
		return r.operations(t.Path(i))
	}
	return path
}

// tree returns the tree in which a problem with requests of a type is searched, or an incident; nil if it is unknown.
func (r renderer) tree(subject search.Subject, requestType analysis.Hash) *cct.Tree {
	if id, about := subject.Incident(); about {
		return r.core.Searches.Tree(id)
	}
	t, _ := r.core.Trees.Built(requestType)
	return t
}

// tracepoint returns the name of a tracepoint; its identity if the name is unknown.
func (r renderer) tracepoint(tp trace.Symbol) string {
	if name := r.Table.Text(tp); name != "" && name != trace.Overflow {
		return name
	}
	return hex16(tp)
}

// optional returns s; nil if it is empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func contractPlace(p *describe.Place) contract.Place {
	return contract.Place{
		Edge: edgeID(p.Edge), Label: p.Name, Context: p.Context, Service: p.Service, Operation: p.Operation, Kind: p.Kind,
		Before: optional(p.Before), After: optional(p.After), Target: contractTarget(p.Target),
	}
}

func contractTarget(t *describe.Target) *contract.Target {
	if t == nil {
		return nil
	}
	return &contract.Target{Service: t.Service, Operation: t.Operation, External: t.External}
}

// placeOf returns the place of an edge without its statistics.
func (r renderer) placeOf(e trace.Edge) contract.Place {
	info := r.Table.EdgeInfo(e)
	p := r.Place(&group.EdgeShare{Edge: e, Context: info.Context, Before: info.Before, After: info.After})
	return contractPlace(&p)
}

func (r renderer) edges(edges []group.EdgeShare) []contract.Edge {
	all := make([]contract.Edge, 0, len(edges))
	for _, e := range r.ProblemEdges(edges) {
		all = append(all, contract.Edge{
			Place: contractPlace(&e.Place), MeanNs: e.MeanNS.Pointer(), ShareMean: e.ShareMean.Pointer(),
			ShareVariance: intervalOf(e.ShareVariance, e.ShareLow, e.ShareHigh), TailLiftNs: e.TailLiftNS.Pointer(),
			ExcessNs: intervalOf(e.ExcessNS, e.ExcessLowNS, e.ExcessHighNS), Affected: e.Affected.Pointer(), Score: e.Score.Pointer(),
		})
	}
	return all
}

func (r renderer) refined(shares []detect.RefinedShare) []contract.Refined {
	all := make([]contract.Refined, 0, len(shares))
	for i := range shares {
		x := &shares[i]
		all = append(all, contract.Refined{
			Within: edgeID(x.Within), Context: r.Context(x.Context), Operation: r.Op(x.Op), Tracepoint: r.tracepoint(x.Tracepoint),
			Arm: search.ArmName(x.Arm), Requests: int64(x.N), Hits: int64(x.Hits), MeanNs: number(x.Mean), ExclusiveNs: number(x.Exclusive),
			Share: interval(x.Share, x.ShareLow, x.ShareHigh), Self: number(x.Self), ShareMean: number(x.ShareMean), ExcessNs: number(x.Excess),
		})
	}
	return all
}

func (r renderer) explanations(list []detect.Explanation) []contract.Explanation {
	all := make([]contract.Explanation, 0, len(list))
	for _, x := range r.Explanations(list, nil) {
		all = append(all, contract.Explanation{
			Variable: x.Variable, Value: x.Value, Where: x.Where, Target: hex16(x.TargetEdge), Effect: intervalOf(x.Effect, x.Low, x.High),
			PValue: x.PValue.Pointer(), Remains: x.Remains.Pointer(), Text: x.Name,
		})
	}
	return all
}

// addCauses adds what accounts for p besides its explanations.
func (r renderer) addCauses(d *contract.GetProblem200JSONResponse, p *detect.Problem) {
	causes := describe.NoCauses()
	if f := r.core.Problems.Findings(p.ID); f != nil {
		causes = r.Causes(p, f)
	}
	d.JointCorrelation, d.Unrelated = causes.Joint.Pointer(), make([]contract.Unrelated, 0, len(causes.Unrelated))
	for _, x := range causes.Unrelated {
		d.Unrelated = append(d.Unrelated, contract.Unrelated{Variable: x.Variable, Where: x.Where})
	}
	d.Contrasts = make([]contract.Contrast, 0, len(causes.Contrasts))
	for i := range causes.Contrasts {
		d.Contrasts = append(d.Contrasts, contrast(&causes.Contrasts[i]))
	}
	d.WhatIf = make([]contract.Recovery, 0, len(causes.WhatIf))
	for i := range causes.WhatIf {
		d.WhatIf = append(d.WhatIf, recovery(&causes.WhatIf[i]))
	}
	d.Common = []contract.CommonEdges{}
	for i, c := range r.core.Common {
		if slices.ContainsFunc(c.Edges, func(e explain.TypedEdge) bool { return e.RequestType == p.RequestType }) {
			x := r.Common(&r.core.Common[i])
			d.Common = append(d.Common, commonEdges(&x))
		}
	}
}

func contrast(c *describe.Contrast) contract.Contrast {
	x := contract.Contrast{
		Text: c.Text, Key: c.Key, Value: c.Value, Requests: c.Requests, Rest: c.Rest, Duration: difference(&c.Duration),
		Edges: make([]contract.Difference, 0, len(c.Edges)),
	}
	for i := range c.Edges {
		x.Edges = append(x.Edges, difference(&c.Edges[i]))
	}
	return x
}

func difference(d *describe.Difference) contract.Difference {
	x := contract.Difference{
		MeanNs: d.MeanNS.Pointer(), RestNs: d.RestNS.Pointer(), ExcessNs: d.ExcessNS.Pointer(), LowNs: d.LowNS.Pointer(),
		HighNs: d.HighNS.Pointer(), PValue: d.PValue.Pointer(),
	}
	if d.Edge != nil {
		x.Edge = new(contractPlace(d.Edge))
	}
	return x
}

func recovery(r *describe.Recovery) contract.Recovery {
	return contract.Recovery{
		Text: r.Text, Edge: contractPlace(r.Edge), LevelNs: r.LevelNS, Requests: r.Requests,
		MeanNs: r.MeanNS.Pointer(), MeanLowNs: r.MeanLowNS.Pointer(), MeanHighNs: r.MeanHighNS.Pointer(), MeanFraction: r.MeanFraction.Pointer(),
		P99Ns: r.P99NS, P99Fraction: r.P99Fraction.Pointer(),
	}
}

func commonEdges(c *describe.Common) contract.CommonEdges {
	x := contract.CommonEdges{Text: c.Text, Correlation: c.Correlation.Pointer(), PValue: c.PValue.Pointer(), Edges: make([]contract.TypedEdge, 0, len(c.Edges))}
	for _, e := range c.Edges {
		x.Edges = append(x.Edges, contract.TypedEdge{RequestType: e.RequestType, RequestTypeID: e.RequestTypeID, Context: e.Context})
	}
	return x
}

func sizeModel(m *group.SizeModel) *contract.SizeModel {
	if m == nil {
		return nil
	}
	return &contract.SizeModel{
		InterceptNs: number(m.Base), NsPerByte: number(m.PerByte), NsPerPacket: number(m.PerSegment), PacketBytes: m.Segment,
		Requests: int64(m.Requests), Delayed: number(m.Delayed), TimedOut: number(m.TimedOut), CovTotal: number(m.CoVTotal),
	}
}

func (r renderer) suspects(t *cct.Tree, list []search.Suspect) []contract.Suspect {
	all := make([]contract.Suspect, 0, len(list))
	for i := range list {
		x := &list[i]
		all = append(all, contract.Suspect{
			Tracepoint: r.tracepoint(x.Tracepoint), Operation: r.Op(x.Op), Context: r.path(t, x.Context),
			Share: interval(x.Share, x.Low, x.High), Inclusive: number(x.Inclusive), Requests: int64(x.Requests), Open: x.Open,
		})
	}
	return all
}

func (r renderer) operations(ops []trace.Op) []string {
	all := make([]string, 0, len(ops))
	for _, op := range ops {
		all = append(all, r.Op(op))
	}
	return all
}

// shownSuspects limits the suspects of an investigation in lists.
const shownSuspects = 3

func (r renderer) investigation(v *search.Investigation, suspects int) contract.Investigation {
	x := contract.Investigation{
		State: contract.State(v.Status.String()), Reason: v.Reason, Strategy: v.Strategy,
		Opened: at(v.Opened), Changed: at(v.Changed), Epochs: v.Epochs, On: len(v.Requested), Tried: len(v.Tried),
		Suspects: r.suspects(r.tree(v.Subject, v.RequestType), v.Suspects[:min(len(v.Suspects), suspects)]),
	}
	if x.Problem, x.Incident = subjectOf(v.Subject); x.Incident == nil {
		x.RequestType, x.RequestTypeName, x.Group = v.RequestType.String(), r.RequestType(v.RequestType, v.Entry), v.Group.String()
	}
	return x
}

// shownEvidence limits the evidence of an investigation in its detail.
const shownEvidence = 200

func (r renderer) investigationDetail(v *search.Investigation) *contract.InvestigationDetail {
	d := &contract.InvestigationDetail{
		Investigation: r.investigation(v, len(v.Suspects)), EvidenceTotal: len(v.Evidence),
		Requested: make([]contract.RequestedTracepoint, 0, len(v.Requested)), Evidence: []contract.Evidence{},
	}
	for i := range v.Requested {
		q := &v.Requested[i]
		d.Requested = append(d.Requested, contract.RequestedTracepoint{
			Tracepoint: r.tracepoint(q.Tracepoint), Since: at(q.Since), Value: number(q.Value), Cause: q.Cause,
		})
	}
	evidence := slices.Clone(v.Evidence)
	slices.SortStableFunc(evidence, func(a, b search.Evidence) int { return compareKeys(-a.Share, -b.Share) })
	for i := range evidence[:min(len(evidence), shownEvidence)] {
		e := &evidence[i]
		d.Evidence = append(d.Evidence, contract.Evidence{
			Tracepoint: r.tracepoint(e.Tracepoint), Operation: r.Op(e.Op), Within: hex16(e.Within), Context: r.Context(e.Context),
			Requests: int64(e.N), Share: interval(e.Share, e.Low, e.High), MeanShare: number(e.Mean),
		})
	}
	return d
}

func usage(u search.Usage) contract.Usage {
	return contract.Usage{Tracepoints: u.Tracepoints, Hits: number(u.Hits), Bytes: number(u.Bytes), CPU: number(u.CPU)}
}

func limit(tracepoints int, bytes, cpu float64) contract.Limit {
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

func (r renderer) decision(logged *loggedDecision) contract.Decision {
	d := logged.decision
	problem, incident := subjectOf(d.Subject)
	tree := r.tree(d.Subject, d.Group.RequestType)
	x := contract.Decision{
		ID: logged.id.String(), At: at(d.At), Plan: d.Plan, Problem: problem, Incident: incident, Strategy: d.Strategy,
		From: contract.State(d.From.String()), To: contract.State(d.To.String()), Reason: d.Reason, Text: r.decisionText(d),
		Requests: int64(d.Group.Requests), Rate: number(d.Group.Rate), Cov: number(d.Group.CoV),
		Tree:    contract.SearchedTree{Version: fmt.Sprintf("%016x", d.Tree.Version), Nodes: d.Tree.Nodes, Tracepoints: d.Tree.Tracepoints},
		Matches: make([]contract.DecisionMatch, 0, len(d.Matches)), Suspects: r.suspects(tree, d.Suspects), Picks: r.picks(tree, d.Picks),
		Rejected: make([]contract.Judged, 0, len(d.Rejected)), Off: make([]contract.Judged, 0, len(d.Off)),
		Missing: r.operations(d.Missing), Estimate: usage(d.Estimate), Limit: limit(d.Budget.Tracepoints, d.Budget.Bytes, d.Budget.CPU),
	}
	for i := range d.Matches {
		x.Matches = append(x.Matches, r.match(&d.Matches[i]))
	}
	for _, j := range d.Rejected {
		x.Rejected = append(x.Rejected, contract.Judged{Tracepoint: hex16(j.Tracepoint), TracepointName: r.tracepoint(j.Tracepoint), Reason: j.Reason})
	}
	for _, j := range d.Off {
		x.Off = append(x.Off, contract.Judged{Tracepoint: hex16(j.Tracepoint), TracepointName: r.tracepoint(j.Tracepoint), Reason: j.Reason})
	}
	if d.Overhead.Requests > 0 {
		x.Overhead = &contract.Overhead{MeanNs: interval(d.Overhead.Nanos, d.Overhead.Low, d.Overhead.High)}
	}
	return x
}

func (r renderer) match(m *search.Matched) contract.DecisionMatch {
	x := contract.DecisionMatch{
		Context: r.Context(m.Context), Score: number(m.Score), Nodes: make([]string, 0, len(m.Nodes)), Distance: m.Distance,
		RunnersUp: make([]contract.DecisionRunnerUp, 0, len(m.RunnersUp)),
	}
	for _, n := range m.Nodes {
		x.Nodes = append(x.Nodes, hex16(n))
	}
	for _, n := range m.RunnersUp {
		x.RunnersUp = append(x.RunnersUp, contract.DecisionRunnerUp{Context: r.Context(n.Context), Distance: n.Distance})
	}
	return x
}

func (r renderer) picks(t *cct.Tree, picks []search.Pick) []contract.Pick {
	all := make([]contract.Pick, 0, len(picks))
	for i := range picks {
		p := &picks[i]
		all = append(all, contract.Pick{
			Tracepoint: hex16(p.Tracepoint), TracepointName: r.tracepoint(p.Tracepoint), Operation: r.Op(p.Op), Context: r.path(t, p.Context),
			Score: number(p.Score), Arms: armNames(p.Arms), Cost: usage(p.Cost), Reason: p.Reason,
		})
	}
	return all
}

// decisionText describes a decision in one sentence.
func (r renderer) decisionText(d *search.Decision) string {
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

// pickName returns the operation of a pick or, if the search does not know it, as for tracepoints with an override, the
// name of the tracepoint.
func (r renderer) pickName(p *search.Pick) string {
	if p.Op != 0 {
		return r.Op(p.Op)
	}
	return r.tracepoint(p.Tracepoint)
}

func andMore(n int) string {
	if n < 2 {
		return ""
	}
	return " and " + strconv.Itoa(n-1) + " more"
}
