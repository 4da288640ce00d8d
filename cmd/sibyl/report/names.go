package report

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// otherPlaces names the edges beyond the bound, which are kept together.
const otherPlaces = "other"

// names puts identities into words.
type names struct {
	table     *trace.Table
	types     map[analysis.Hash]string // of request types
	summaries map[summaryKey]*analysis.Summary
	clean     func(string) string // applied to all text that came from traces
	files     []string            // that were read, for commands
}

type summaryKey struct {
	level analysis.Level
	id    analysis.Hash
}

// verbatim leaves text as it came, for formats that escape it themselves.
func verbatim(s string) string { return s }

func newNames(r *engine.Report, clean func(string) string) *names {
	n := &names{
		table: r.Table, clean: clean,
		types: make(map[analysis.Hash]string), summaries: make(map[summaryKey]*analysis.Summary),
	}
	taken := make(map[string]bool)
	for i := range r.Groups {
		s := &r.Groups[i]
		n.summaries[summaryKey{s.Level, s.ID}] = s
		if s.Level == analysis.RequestTypeLevel {
			name := n.typeName(s)
			if taken[name] {
				name += " #" + s.ID.String()[:8]
			}
			taken[name] = true
			n.types[s.ID] = name
		}
	}
	return n
}

// typeName returns the entry operation, with what tells it apart where several request types enter there.
func (n *names) typeName(s *analysis.Summary) string {
	if s.Name != "" {
		return n.clean(s.Name)
	}
	name := n.op(s.Entry)
	if len(s.Distinct) == 0 {
		return name
	}
	const most = 3 // to keep names short; the first are the most telling
	var parts []string
	for _, op := range s.Distinct[:min(most, len(s.Distinct))] {
		if n.table.Operation(op).Service == n.table.Operation(s.Entry).Service {
			parts = append(parts, n.opName(op))
		} else {
			parts = append(parts, n.op(op))
		}
	}
	return name + " (" + strings.Join(parts, ", ") + ")"
}

// requestType returns the name of the request type with the given identity, which is unique within the report.
func (n *names) requestType(id analysis.Hash, entry trace.Op) string {
	if name, ok := n.types[id]; ok {
		return name
	}
	return n.op(entry)
}

// summary returns what is known about the requests that p is about; nil if the report does not hold it.
func (n *names) summary(p *analysis.Problem) *analysis.Summary {
	return n.summaries[summaryKey{p.Level, p.Group}]
}

// op returns "service operation".
func (n *names) op(op trace.Op) string {
	return strings.TrimSpace(n.service(op) + " " + n.opName(op))
}

// service returns the name of op's service.
func (n *names) service(op trace.Op) string { return n.clean(n.table.ServiceName(op)) }

// opName returns op's name without its service.
func (n *names) opName(op trace.Op) string { return n.clean(n.table.OpName(op)) }

// context returns the operations from the root down to c.
func (n *names) context(c trace.Context) []string {
	path := []string{} // not nil: JSON shows it as a list
	for _, op := range n.table.Path(c) {
		path = append(path, n.op(op))
	}
	return path
}

// last returns the operation that c ends with; 0 for the empty context.
func (n *names) last(c trace.Context) trace.Op { return n.table.Context(c).Op }

// edge returns the short name of a place on the path: who spends time there, and where within its span.
func (n *names) edge(e *analysis.EdgeShare) string {
	if e.Edge == 0 {
		return otherPlaces
	}
	if e.Callee != 0 {
		return n.wire(e)
	}
	name := n.op(n.last(e.Context))
	switch {
	case e.Before != 0 && e.After != 0:
		return name + ", between " + n.opName(e.Before) + " and " + n.opName(e.After)
	case e.Before != 0:
		return name + ", after " + n.opName(e.Before)
	case e.After != 0:
		return name + ", before " + n.opName(e.After)
	}
	return name
}

// wire returns the name of the time between a caller and its callee.
func (n *names) wire(e *analysis.EdgeShare) string {
	name := n.service(n.last(e.Context)) + " → " + n.op(e.Callee)
	if e.Before == e.Callee {
		return name + " (answer on the wire)"
	}
	return name + " (wire or queue)"
}

// byVariance returns the indices of edges by falling share of the variance, unknown ones last, the rest as they are.
func byVariance(edges []analysis.EdgeShare) []int {
	order := make([]int, len(edges))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return descending(edges[i].ShareVariance, edges[j].ShareVariance) })
	return order
}

// descending compares two numbers so that the larger comes first and NaN last.
func descending(a, b float64) int {
	switch aNaN, bNaN := a != a, b != b; {
	case aNaN && bNaN:
		return 0
	case aNaN:
		return 1
	case bNaN:
		return -1
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// leading returns the edge that a problem is about; nil if it has none.
func leading(p *analysis.Problem) *analysis.EdgeShare {
	if len(p.Edges) == 0 {
		return nil
	}
	return &p.Edges[0]
}

// Variables that are no attributes, as analysis names them.
const (
	variableCount    = "count"
	variablePresent  = "present"
	variableErrors   = "errors"
	variableSkeleton = "skeleton"
)

// bins says what the requests of a group have in common besides their path; "" if nothing.
func (n *names) bins(s *analysis.Summary) string {
	var parts []string
	for i := range s.Bins {
		b := &s.Bins[i]
		what, _ := n.variable(&analysis.Explanation{Variable: b.Variable, Value: b.Value, Where: b.Where})
		parts = append(parts, what)
	}
	return strings.Join(parts, ", ")
}

// variable puts the variable of an explanation into words, with its value if one stands out, and its place.
func (n *names) variable(x *analysis.Explanation) (what, where string) {
	at := n.op(n.last(x.Where))
	value := ""
	if x.Value != "" {
		value = " = " + n.clean(x.Value)
	}
	switch {
	case x.Variable == variableSkeleton:
		return "the path that requests take", ""
	case x.Where == 0:
		return n.clean(x.Variable) + value, ""
	case x.Variable == variableCount:
		return "calls of " + at + value, ""
	case x.Variable == variablePresent && x.Value == "false":
		return at + " is not called", ""
	case x.Variable == variablePresent:
		return at + " is called", ""
	case x.Variable == variableErrors:
		return "errors of " + at + value, ""
	}
	return n.clean(x.Variable) + value, " at " + at
}
