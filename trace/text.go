package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrSyntax is returned for text that [ParseText] does not understand.
var ErrSyntax = errors.New("trace text: syntax error")

// ParseText reads a trace in the text form that tests and documents use, one span a line:
//
//	a shop "GET /cart" server 0..100
//	  b shop Cart.Get client 10..50 host=x
//	    c cart Get server 12..48 host=y cart.size=7
//	lost parent=ff db query client 20..30 error
//
// A line holds the span's name in this text (hexadecimal names are the span's ID, others are numbered by hash), service,
// operation (quoted where it holds spaces), kind, and start..end in nanoseconds, or as Go durations (10ms..50ms). Two
// spaces of indentation make a span the child of the line above that is indented less. What may follow: parent=NAME
// (overrides the indentation; a name that no line has makes an orphan), host=NAME, tp=TRACEPOINT, join=NAME, the words
// error and remote, and any key=value attribute. Empty lines and lines that begin with # are skipped.
//
// Names are entered in table. It returns an error wrapping [ErrSyntax] that says the line.
func ParseText(text string, table *Table) (*Trace, error) {
	p := textParser{table: table, trace: &Trace{ID: ID{15: 1}}}
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

// TextID returns the span ID that [ParseText] gives to a name.
func TextID(name string) SpanID {
	if id, err := strconv.ParseUint(name, 16, 64); err == nil && id != 0 {
		return SpanID(id)
	}
	return SpanID(symbolOf(name))
}

type textParser struct {
	table *Table
	trace *Trace
	above []indented // the chain of spans that the next line may be a child of
}

type indented struct {
	indent int
	id     SpanID
}

func (p *textParser) line(line string) error {
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
	kind, ok := ParseKind(words[3])
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
	s := Span{ID: TextID(words[0]), Start: start, End: end, Kind: kind, Service: p.table.Symbol(words[1])}
	if n := len(p.above); n > 0 {
		s.Parent = p.above[n-1].id
	}
	s.Op = p.table.Op(s.Service, p.table.SymbolBytes(NormalName([]byte(words[2]), nil)), kind)
	for _, w := range words[5:] {
		if err := p.property(&s, w); err != nil {
			return err
		}
	}
	p.above = append(p.above, indented{indent, s.ID})
	p.trace.Spans = append(p.trace.Spans, s)
	return nil
}

func (p *textParser) property(s *Span, word string) error {
	key, value, pair := strings.Cut(word, "=")
	index := int32(len(p.trace.Spans))
	switch {
	case word == "error":
		s.Flags |= Error
	case word == "remote":
		s.Flags |= RemoteParent
	case !pair:
		return fmt.Errorf("unknown word %q", word)
	case key == "parent":
		s.Parent = TextID(value)
	case key == "host":
		s.Host = p.table.Symbol(value)
	case key == "tp":
		s.Tracepoint = p.table.Symbol(value)
	case key == "join":
		p.trace.Joins = append(p.trace.Joins, Join{Span: index, Linked: TextID(value)})
	default:
		a := Attr{Key: p.table.Symbol(key), Span: index}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			a.Number, a.Numeric = n, true
		} else {
			a.Text = p.table.Symbol(value)
		}
		p.trace.Attrs = append(p.trace.Attrs, a)
	}
	return nil
}

// splitWords splits at spaces, but not within double quotes, which are removed.
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

func parseInterval(s string) (start, end Nanos, err error) {
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

func parseTime(s string) (Nanos, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Nanos(n), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("time %q: want nanoseconds or a duration like 10ms", s)
	}
	return Nanos(d), nil
}

// Format returns the text form of t, which [ParseText] reads back: children below their parent, in the order of start, then
// ID. Spans that lie on a cycle of parents are listed flat with parent=. Not kept are the trace's ID, quotes and line ends within names,
// and whether the value of an attribute that reads as a number was text.
func Format(t *Trace, table *Table) string {
	f := textFormatter{trace: t, table: table, byID: make(map[SpanID]bool), children: make(map[SpanID][]int32)}
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

type textFormatter struct {
	trace    *Trace
	table    *Table
	byID     map[SpanID]bool
	children map[SpanID][]int32
	done     []bool
	out      strings.Builder
}

// subtree writes span i and everything below it, with a stack of its own: traces may be deep.
func (f *textFormatter) subtree(i int32) {
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

func (f *textFormatter) span(i int32, depth int, withParent bool) {
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
	if s.Flags&RemoteParent != 0 {
		f.out.WriteString(" remote")
	}
	if s.Flags&Error != 0 {
		f.out.WriteString(" error")
	}
	for _, j := range f.trace.Joins {
		if j.Span == i {
			fmt.Fprintf(&f.out, " join=%x", uint64(j.Linked))
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

// quote puts s in double quotes where it holds a space or is empty.
func quote(s string) string {
	s = strings.ReplaceAll(s, `"`, `'`)
	if s == "" || strings.ContainsAny(s, " \n") {
		return `"` + strings.ReplaceAll(s, "\n", " ") + `"`
	}
	return s
}
