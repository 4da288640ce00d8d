// Package tracetext parses and formats traces in a text form for tests: see [Parse].
package tracetext

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// ErrSyntax is the error of [Parse] for invalid text.
var ErrSyntax = errors.New("tracetext: syntax error")

// Parse parses a trace in the text form of tests and documents, one span per line:
//
//	a shop "GET /cart" server 0..100
//	  b shop Cart.Get client 10..50 host=x
//	    c cart Get server 12..48 host=y cart.size=7
//	lost parent=ff db query client 20..30 error
//
// The columns are the span's name within the text, its service, operation, kind, and start..end in nanoseconds or as
// Go durations (10ms..50ms). A hexadecimal name is the span's ID; other names are hashed to one (see [ID]). Names with
// spaces are quoted. A span is a child of the nearest line above it with less indentation.
//
// Optional words follow: parent=NAME overrides the indentation and may name a span that is missing; host=NAME,
// tp=TRACEPOINT, peer=SERVICE, join=NAME, link=MESSAGE, error and remote set the span's fields; any other key=value is
// an attribute. Empty lines and lines that start with # are skipped.
//
// Parse adds names to table. It returns an error wrapping [ErrSyntax] with the number of the line. The trace's ID is
// 1.
func Parse(text string, table *trace.Table) (*trace.Trace, error) {
	p := parser{table: table, trace: &trace.Trace{ID: trace.ID{15: 1}}}
	for i, line := range strings.Split(text, "\n") {
		if trimmed := strings.TrimSpace(line); trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrSyntax, i+1, err)
		}
	}
	return p.trace, nil
}

// ID returns the span ID that [Parse] assigns to a name.
func ID(name string) trace.SpanID {
	if id, err := strconv.ParseUint(name, 16, 64); err == nil && id != 0 {
		return trace.SpanID(id)
	}
	return trace.SpanID(trace.SymbolOf([]byte(name)))
}

type parser struct {
	table *trace.Table
	trace *trace.Trace
	above []indented // the last span and its ancestors: candidates for the parent of the next line
}

type indented struct {
	indent int
	id     trace.SpanID
}

func (p *parser) line(line string) error {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	words, err := splitWords(line)
	if err != nil {
		return err
	}
	if len(words) > 1 && strings.HasPrefix(words[1], "parent=") { // parent= may also follow the name
		words = append(slices.Delete(slices.Clone(words), 1, 2), words[1])
	}
	if len(words) < 5 {
		return errors.New("want: name service operation kind start..end")
	}
	kind, ok := trace.ParseKind(words[3])
	if !ok {
		return fmt.Errorf("unknown span kind %q", words[3])
	}
	start, end, err := parseInterval(words[4])
	if err != nil {
		return err
	}
	for len(p.above) > 0 && p.above[len(p.above)-1].indent >= indent {
		p.above = p.above[:len(p.above)-1]
	}
	s := trace.Span{ID: ID(words[0]), Start: start, End: end, Kind: kind, Service: p.table.Symbol(words[1])}
	if n := len(p.above); n > 0 {
		s.Parent = p.above[n-1].id
	}
	s.Op = p.table.Op(s.Service, p.table.SymbolBytes(trace.NormalName([]byte(words[2]), nil)), kind)
	for _, w := range words[5:] {
		if err := p.property(&s, w); err != nil {
			return err
		}
	}
	p.above = append(p.above, indented{indent, s.ID})
	p.trace.Spans = append(p.trace.Spans, s)
	return nil
}

func (p *parser) property(s *trace.Span, word string) error {
	key, value, pair := strings.Cut(word, "=")
	index := int32(len(p.trace.Spans))
	switch {
	case word == "error":
		s.Flags |= trace.Error
	case word == "remote":
		s.Flags |= trace.RemoteParent
	case !pair:
		return fmt.Errorf("unknown word %q", word)
	case key == "parent":
		s.Parent = ID(value)
	case key == "host":
		s.Host = p.table.Symbol(value)
	case key == "tp":
		s.Tracepoint = p.table.Symbol(value)
	case key == "peer":
		s.Peer = p.table.Op(p.table.Symbol(value), 0, trace.External)
	case key == "link":
		p.trace.Joins = append(p.trace.Joins, trace.Join{Span: index, Message: true, Linked: ID(value)})
	case key == "join":
		p.trace.Joins = append(p.trace.Joins, trace.Join{Span: index, Linked: ID(value)})
	default:
		a := trace.Attr{Key: p.table.Symbol(key), Span: index}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			a.Number, a.Numeric = n, true
		} else {
			a.Text = p.table.Symbol(value)
		}
		p.trace.Attrs = append(p.trace.Attrs, a)
	}
	return nil
}

// splitWords splits line at spaces outside double quotes and removes the quotes.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '"':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

func parseInterval(s string) (start, end trace.Nanos, err error) {
	from, to, ok := strings.Cut(s, "..")
	if !ok {
		return 0, 0, fmt.Errorf("interval %q: want start..end", s)
	}
	if start, err = parseTime(from); err != nil {
		return 0, 0, err
	}
	end, err = parseTime(to)
	return start, end, err
}

func parseTime(s string) (trace.Nanos, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return trace.Nanos(n), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("time %q: want nanoseconds or a duration like 10ms", s)
	}
	return trace.Nanos(d), nil
}

// Format formats t as text for [Parse]: children below their parent, ordered by start, then ID. Spans on a cycle of
// parents are listed without indentation, with parent=. The text omits the trace's ID, replaces quotes and line ends
// within names, and does not distinguish numbers from text attributes that look like numbers.
func Format(t *trace.Trace, table *trace.Table) string {
	f := formatter{trace: t, table: table, byID: make(map[trace.SpanID]bool), children: make(map[trace.SpanID][]int32)}
	for i := range t.Spans {
		f.byID[t.Spans[i].ID] = true
	}
	for i := range t.Spans {
		s := &t.Spans[i]
		f.children[s.Parent] = append(f.children[s.Parent], int32(i))
	}
	for _, c := range f.children {
		slices.SortStableFunc(c, func(i, j int32) int {
			a, b := &t.Spans[i], &t.Spans[j]
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
		})
	}
	f.done = make([]bool, len(t.Spans))
	for i := range t.Spans {
		if p := t.Spans[i].Parent; p == 0 || !f.byID[p] {
			f.subtree(int32(i))
		}
	}
	for i := range t.Spans {
		if !f.done[i] {
			f.span(int32(i), 0, true)
		}
	}
	return f.out.String()
}

type formatter struct {
	trace    *trace.Trace
	table    *trace.Table
	byID     map[trace.SpanID]bool
	children map[trace.SpanID][]int32
	done     []bool
	out      strings.Builder
}

// subtree writes span i and its descendants. It keeps its own stack because traces may be deep.
func (f *formatter) subtree(i int32) {
	type entry struct {
		span  int32
		depth int
	}
	stack := []entry{{i, 0}}
	for len(stack) > 0 {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if f.done[e.span] {
			continue
		}
		s := &f.trace.Spans[e.span]
		f.span(e.span, e.depth, e.depth == 0 && s.Parent != 0)
		for _, c := range slices.Backward(f.children[s.ID]) {
			stack = append(stack, entry{c, e.depth + 1})
		}
	}
}

func (f *formatter) span(i int32, depth int, withParent bool) {
	f.done[i] = true
	s := &f.trace.Spans[i]
	fmt.Fprintf(&f.out, "%s%x %s %s %s %d..%d", strings.Repeat("  ", depth), uint64(s.ID),
		quote(f.table.Text(s.Service)), quote(f.table.OpName(s.Op)), s.Kind, s.Start, s.End)
	if withParent {
		fmt.Fprintf(&f.out, " parent=%x", uint64(s.Parent))
	}
	if s.Host != 0 {
		fmt.Fprintf(&f.out, " host=%s", quote(f.table.Text(s.Host)))
	}
	if s.Tracepoint != 0 {
		fmt.Fprintf(&f.out, " tp=%s", quote(f.table.Text(s.Tracepoint)))
	}
	if s.Peer != 0 {
		fmt.Fprintf(&f.out, " peer=%s", quote(f.table.ServiceName(s.Peer)))
	}
	if s.Flags&trace.RemoteParent != 0 {
		f.out.WriteString(" remote")
	}
	if s.Flags&trace.Error != 0 {
		f.out.WriteString(" error")
	}
	for _, j := range f.trace.Joins {
		if word := map[bool]string{false: "join", true: "link"}[j.Message]; j.Span == i {
			fmt.Fprintf(&f.out, " %s=%x", word, uint64(j.Linked))
		}
	}
	for _, a := range f.trace.Attrs {
		if a.Span != i {
			continue
		}
		if a.Numeric {
			fmt.Fprintf(&f.out, " %s=%v", quote(f.table.Text(a.Key)), a.Number)
		} else {
			fmt.Fprintf(&f.out, " %s=%s", quote(f.table.Text(a.Key)), quote(f.table.Text(a.Text)))
		}
	}
	f.out.WriteByte('\n')
}

// quote puts s in double quotes if it is empty or contains a space or line end. It replaces quotes in s with
// apostrophes, and line ends with spaces.
func quote(s string) string {
	s = strings.ReplaceAll(s, `"`, `'`)
	if s == "" || strings.ContainsAny(s, " \n") {
		return `"` + strings.ReplaceAll(s, "\n", " ") + `"`
	}
	return s
}
