// Package describe presents requests and problems to people and programs. It names operations, places on the critical
// path and request types ([Names]), describes a problem in one sentence whose phrases refer to their evidence
// ([Diagnosis]), presents problems for the API, reports and webhooks ([Problem], [Findings]), and exports
// critical paths as profiles for other tools ([Pprof], [Folded]).
//
// It computes no statistics: every number comes from its input. It is safe for concurrent use while its input does not
// change.
package describe

import (
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// OtherPlaces names the remainder: all edges beyond the limit, counted together.
const OtherPlaces = "other"

// Names translates identities into names. It looks up the names in the table at each call, and keeps the names and
// summaries that were added to it.
type Names struct {
	Table     *trace.Table
	Clean     func(string) string      // applied to all text that comes from traces
	Types     map[analysis.Hash]string // names of request types; see Add and SetName
	taken     map[string]bool          // the names in Types
	summaries map[summaryKey]*group.Summary
}

type summaryKey struct {
	level group.Level
	id    analysis.Hash
}

// Verbatim returns s unchanged. It is for formats that escape text themselves.
func Verbatim(s string) string { return s }

// New returns names without request types and summaries. They apply clean to all text from traces; [Verbatim] leaves it
// unchanged.
func New(table *trace.Table, clean func(string) string) *Names {
	return &Names{
		Table:     table,
		Clean:     clean,
		Types:     make(map[analysis.Hash]string),
		taken:     make(map[string]bool),
		summaries: make(map[summaryKey]*group.Summary),
	}
}

// Add adds the summary of a group or request type, as [Names.AddSummary] does. It also gives a request type a name
// that is unique among the added types. A type that is added again keeps its name.
func (n *Names) Add(s *group.Summary) {
	n.AddSummary(s)
	if s.Level != group.LevelRequestType {
		return
	}
	name := n.typeName(s)
	if n.taken[name] && n.Types[s.ID] != name {
		name += " #" + s.ID.String()[:8]
	}
	n.SetName(s.ID, name)
}

// AddSummary adds s. Sentences about its requests quote its statistics.
func (n *Names) AddSummary(s *group.Summary) { n.summaries[summaryKey{s.Level, s.ID}] = s }

// SetName names a request type.
func (n *Names) SetName(requestType analysis.Hash, name string) {
	n.taken[name] = true
	n.Types[requestType] = name
}

// typeName returns the name of the request type s: its own, or the name of its entry operation followed by the
// operations that distinguish it from other request types with the same entry. Calls by the entry's service are named
// after the operation that they call.
func (n *Names) typeName(s *group.Summary) string {
	if s.Name != "" {
		return n.Clean(s.Name)
	}
	name := n.Op(s.Entry)
	if len(s.Distinct) == 0 {
		return name
	}
	const most = 3 // keeps names short; the most distinctive operations come first
	var parts []string
	for _, op := range s.Distinct[:min(most, len(s.Distinct))] {
		if n.Table.Operation(op).Service == n.Table.Operation(s.Entry).Service {
			parts = append(parts, n.Called(op))
		} else {
			parts = append(parts, n.Op(op))
		}
	}
	return name + " (" + strings.Join(parts, ", ") + ")"
}

// RequestType returns the name of a request type, or the name of its entry operation if the type has not been added.
func (n *Names) RequestType(id analysis.Hash, entry trace.Op) string {
	if name, ok := n.Types[id]; ok {
		return name
	}
	return n.Op(entry)
}

// Summary returns the summary of the requests of p, or nil if the summary has not been added.
func (n *Names) Summary(p *detect.Problem) *group.Summary {
	return n.summaries[summaryKey{p.Level, p.Group}]
}

// unnamed stands for an operation whose service and name are blank, and unnamedService for a service whose name is
// blank.
const (
	unnamed        = "(unnamed)"
	unnamedService = "(unnamed service)"
)

// NamedService returns the name of a service for a sentence or a table. It replaces the blank name of spans without
// service.name.
func (n *Names) NamedService(service trace.Symbol) string {
	if name := n.Text(service); strings.TrimSpace(name) != "" {
		return name
	}
	return unnamedService
}

// service, op and text return names as phrases.
func (n *Names) service(service trace.Symbol) Phrase { return Name(n.NamedService(service)) }
func (n *Names) op(op trace.Op) Phrase               { return Name(n.Op(op)) }
func (n *Names) text(text trace.Symbol) Phrase       { return Name(n.Text(text)) }

// Op returns the name of a step: "service operation", followed by an arrow and the name of the target if the step has
// one. It omits an operation name that adds nothing to the target's name, such as an HTTP method: "frontend → cart GET
// /cart".
func (n *Names) Op(op trace.Op) string {
	target := n.Table.Target(op)
	if class := detect.WaitClass(n.Table, op); class != "" {
		return strings.TrimSpace(n.Service(op) + " " + detect.Waiting(class)) // the name used in sentences
	}
	if target == 0 {
		name := strings.TrimSpace(n.Service(op) + " " + n.OpName(op))
		if name == "" && op != 0 {
			return unnamed
		}
		return name
	}
	name, called := n.Service(op), n.Op(target)
	if own := strings.TrimPrefix(n.OpName(op), "HTTP "); !strings.Contains(called, own) {
		name += " " + own
	}
	return name + " → " + called
}

// External reports whether op emits no spans. Its name then comes from the attributes of its callers.
func (n *Names) External(op trace.Op) bool { return n.Table.Operation(op).Kind == trace.External }

// Queued reports whether op is the wait of a request for a worker, as OpenTelemetry's eBPF instrumentation names it.
func (n *Names) Queued(op trace.Op) bool {
	o := n.Table.Operation(op)
	return o.Kind == trace.Internal && n.Table.Text(o.Name) == "in queue"
}

// onWire reports whether the own time of a step is spent on the wire to its target, or in the queue of the target.
func (n *Names) onWire(step trace.Op) bool {
	target := n.Table.Target(step)
	return target != 0 && !n.External(target)
}

// Called returns the name of a step as its caller sees it: the name of the step's target, or of its operation if it has
// no target.
func (n *Names) Called(op trace.Op) string {
	if target := n.Table.Target(op); target != 0 {
		return n.Op(target)
	}
	return n.OpName(op)
}

// Service returns the name of op's service.
func (n *Names) Service(op trace.Op) string { return n.Clean(n.Table.ServiceName(op)) }

// OpName returns op's name without its service and target.
func (n *Names) OpName(op trace.Op) string { return n.Clean(n.Table.OpName(op)) }

// Kind returns the name of op's kind.
func (n *Names) Kind(op trace.Op) string { return n.Table.Operation(op).Kind.String() }

// Text returns the text of a symbol.
func (n *Names) Text(s trace.Symbol) string { return n.Clean(n.Table.Text(s)) }

// Context returns the names of the operations from the root down to c. The result is not nil.
func (n *Names) Context(c trace.Context) []string {
	path := []string{} // JSON encodes nil as null
	for _, op := range n.Table.Path(c) {
		path = append(path, n.Op(op))
	}
	return path
}

// Last returns the operation that c ends with, or 0 for the empty context.
func (n *Names) Last(c trace.Context) trace.Op { return n.Table.Context(c).Op }

// Edge returns the short name of a place on the critical path: the operation, and the position within its span.
func (n *Names) Edge(e *group.EdgeShare) string { return n.edge(e).String() }

// edge returns the name of a place as phrases.
func (n *Names) edge(e *group.EdgeShare) Sentence {
	if e.Edge == 0 {
		return Sentence{Name(OtherPlaces)}
	}
	called := func(op trace.Op) Phrase { return Name(n.Called(op)) }
	step := n.Last(e.Context)
	of, target := n.op(step), n.Table.Target(step)
	switch {
	case target != 0 && e.Before == target:
		return Say("%s (answer on the wire)", of)
	case n.onWire(step):
		return Say("%s (wire or queue)", of)
	case e.Before != 0 && e.After != 0:
		return Say("%s, between %s and %s", of, called(e.Before), called(e.After))
	case e.Before != 0:
		return Say("%s, after %s", of, called(e.Before))
	case e.After != 0:
		return Say("%s, before %s", of, called(e.After))
	}
	return Sentence{of}
}

// Leading returns the leading edge of p, which is p.Edges[0], or nil if p has no edges.
func Leading(p *detect.Problem) *group.EdgeShare {
	if len(p.Edges) == 0 {
		return nil
	}
	return &p.Edges[0]
}

// Variables that analysis derives, by name. All other variables are attributes.
const (
	variableCount    = "count"
	variablePresent  = "present"
	variableErrors   = "errors"
	variableSkeleton = "skeleton"
)

// Bins returns the attribute values that all requests of a group share, as text, or "" if only the path of its requests
// distinguishes the group from others.
func (n *Names) Bins(s *group.Summary) string {
	var parts []string
	for i := range s.Bins {
		b := &s.Bins[i]
		text, _ := n.Variable(&detect.Explanation{Variable: b.Variable, Value: b.Value, Where: b.Where})
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// Variable returns the variable of an explanation as text, with its value if it has one. where is the place of the
// variable, or "" if text names the place or the variable belongs to the whole request.
func (n *Names) Variable(x *detect.Explanation) (text, where string) {
	of, at := n.variable(x)
	return of.String(), at.String()
}

// variable is like Variable, but returns phrases.
func (n *Names) variable(x *detect.Explanation) (of, where Sentence) {
	at, value := n.op(n.Last(x.Where)), ""
	if x.Value != "" {
		value = " = " + n.Clean(x.Value)
	}
	switch {
	case x.Variable == variableSkeleton:
		return Say("the call flow"), nil
	case x.Where == 0:
		return Sentence{Name(n.Clean(x.Variable) + value)}, nil
	case x.Variable == variableCount:
		return Sentence{{Text: "calls of "}, at, {Text: value}}, nil
	case x.Variable == variablePresent && x.Value == "false":
		return Say("%s is not called", at), nil
	case x.Variable == variablePresent:
		return Say("%s is called", at), nil
	case x.Variable == variableErrors:
		return Sentence{{Text: "errors of "}, at, {Text: value}}, nil
	}
	return Sentence{Name(n.Clean(x.Variable) + value)}, Say(" at %s", at)
}
