package waterfall

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configures a waterfall.
type Options struct {
	Style terminal.Style
	// Most is the maximum number of spans shown per root; 0 shows all. If a root has more spans, only the first Most
	// spans on its critical path are shown.
	Most int
	// Suspects maps nodes of the path to the ranks of suspected spans, starting at 1. A rank up to 9 replaces the mark
	// of the span.
	Suspects map[int32]int
}

// Legend explains the marks of [Text].
const Legend = "● on the critical path   █ its own time there   ─ waiting or off the path"

// SuspectsLegend explains the marks of [Options.Suspects].
const SuspectsLegend = "1–9 suspects, by rank"

// Text writes p as a waterfall. Each span has a line below the line of its parent, with a bar for its time. The span's
// own time on the critical path is solid.
func Text(w io.Writer, p *critpath.Path, table *trace.Table, options Options) error {
	d := drawing{path: p, table: table, options: options}
	d.title()
	for i := range p.Roots {
		d.root(i)
	}
	_, err := io.WriteString(w, d.out.String())
	return err
}

type drawing struct {
	path    *critpath.Path
	table   *trace.Table
	options Options
	attrs   map[spanKey]*trace.Attr // nil until needed
	out     strings.Builder
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

func (d *drawing) title() {
	p, style := d.path, d.options.Style
	services := make(map[trace.Symbol]bool)
	for i := range p.Trace.Spans {
		services[p.Trace.Spans[i].Service] = true
	}
	d.printf("%s  %s, %s", style.Paint(terminal.Bold, "trace "+p.Trace.ID.String()),
		units.Plural(len(p.Nodes), "span"), units.Plural(len(services), "service"))
	if len(p.Roots) > 1 {
		d.printf(", %s", units.Plural(len(p.Roots), "root"))
	}
	if dropped := len(p.Trace.Spans) - len(p.Nodes); dropped > 0 {
		d.printf(", %s dropped", units.Count(dropped))
	}
	d.printf("\n")
	if names := p.Flags.Names(); len(names) > 0 {
		d.printf("%s\n",
			style.Paint(terminal.Yellow, "flags: "+strings.ReplaceAll(strings.Join(names, ", "), "_", " ")))
	}
}

// row is the line of a span in the waterfall.
type row struct {
	node  int32
	depth int
}

// root draws the root with the given index and its spans.
func (d *drawing) root(index int) {
	r := &d.path.Roots[index]
	sections := r.Sections
	if len(r.Refined) > 0 {
		sections = r.Refined
	}
	d.origin(index)
	c := d.newCanvas(r, sections)
	rows := d.rows(index, c)
	shown := rows
	if d.options.Most > 0 {
		shown = rows[:min(len(rows), d.options.Most)]
	}
	d.divide(c, shown)
	d.axis(c)
	for _, row := range shown {
		d.row(c, row)
	}
	d.left(r, len(shown), len(rows))
	if r.AsyncTail > 0 {
		d.printf("  work went on for %s after the end of the request\n", units.Duration(r.AsyncTail))
	}
}

// origin writes the reason why the root with the given index is separate from the others. It writes nothing about an
// ordinary root.
func (d *drawing) origin(index int) {
	text := ""
	if w, ok := d.path.Wait(index); ok {
		text = "a request of its own, " + units.Duration(w.Time) + " after " +
			d.table.ServiceName(w.Caller) + " " + d.table.OpName(w.Caller)
		if w.Queue != 0 {
			text += ", by way of " + d.table.ServiceName(w.Queue)
		}
	} else if g, ok := d.path.Gap(index); ok {
		text = "below a hop without spans or a lost span"
		if g.Hop != 0 {
			text += ", " + d.table.ServiceName(g.Hop)
		}
		text += ", called by " + d.table.ServiceName(g.Caller) + " " + d.table.OpName(g.Caller)
	} else if d.path.Roots[index].Origin == critpath.BelowMissing {
		text = "below a missing span"
	}
	if text != "" {
		d.printf("%s\n", d.options.Style.Paint(terminal.Dim, terminal.Printable(text)))
	}
}

// left writes the number of spans of r that aren't shown, if any, and the reason. rows is the number of rows, and shown
// the number of rows that are shown.
func (d *drawing) left(r *critpath.Root, shown, rows int) {
	all := int(r.Last - r.First)
	if shown == all {
		return
	}
	why := "off the critical path"
	if shown < rows {
		why = units.Count(rows-shown) + " of them on the critical path"
	}
	d.printf("  … %s not shown, %s (--max-spans 0 shows all)\n", units.Plural(all-shown, "span"), why)
}

// rows returns the spans to show for the root with the given index: parents before their children, siblings by start,
// then ID.
func (d *drawing) rows(root int, c *canvas) []row {
	r := &d.path.Roots[root]
	children := make(map[int32][]int32)
	for i := r.First; i < r.Last; i++ {
		if i != r.Node && (!d.crowded(r) || c.critical[i]) {
			up := d.path.Nodes[i].Parent
			children[up] = append(children[up], i)
		}
	}
	var rows []row
	for stack := []row{{r.Node, 0}}; len(stack) > 0; {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		rows = append(rows, top)
		below := children[top.node]
		sorting.Slice(below, func(i, j int32) int {
			a, b := &d.path.Nodes[i], &d.path.Nodes[j]
			return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(b.ID, a.ID)) // reversed, for the stack
		})
		for _, i := range below {
			stack = append(stack, row{i, top.depth + 1})
		}
	}
	return rows
}

// crowded reports whether r has more spans than options.Most allows.
func (d *drawing) crowded(r *critpath.Root) bool {
	return d.options.Most > 0 && int(r.Last-r.First) > d.options.Most
}

// Widths of the columns of a waterfall.
const (
	minBar    = 12 // minimum width of bars on narrow lines
	leastBar  = 24 // names longer than 40 % of the line must leave bars this wide
	minName   = 24
	maxName   = 64
	timeWidth = 9
)

// canvas holds the scale and the columns of the drawing of a root.
type canvas struct {
	start, length trace.Nanos
	name, bar     int // columns
	indent        int // maximum indentation of a name
	own           map[int32]int64
	critical      map[int32]bool
	sections      map[int32][]critpath.Section
}

func (d *drawing) newCanvas(r *critpath.Root, sections []critpath.Section) *canvas {
	n := &d.path.Nodes[r.Node]
	c := &canvas{
		start:    n.Start,
		length:   max(n.End-n.Start, 1),
		own:      exclusive(r, sections),
		critical: make(map[int32]bool),
		sections: make(map[int32][]critpath.Section),
	}
	for _, i := range r.Critical {
		c.critical[i] = true
	}
	for _, s := range sections {
		c.sections[s.Node] = append(c.sections[s.Node], s)
		// the spans between belong to tracepoints that only wait
		for i := s.Node; i >= 0 && !c.critical[i]; i = d.path.Nodes[i].Parent {
			c.critical[i] = true
		}
	}
	return c
}

// divide sets the widths of the columns of c, so that the names of rows and the bars share the line.
func (d *drawing) divide(c *canvas, rows []row) {
	line := d.options.Style.Line()
	rest := line - 2 - 2*timeWidth - 2
	limit := min(max(line*2/5, rest-leastBar, minName), maxName)
	for _, r := range rows {
		name := indentation(r.depth, limit/2) + d.name(r)
		c.name = min(max(c.name, terminal.Width(name)), limit)
	}
	c.indent = limit / 2
	c.bar = max(rest-c.name, minBar)
}

// axis writes the scale of time above the bars.
func (d *drawing) axis(c *canvas) {
	length := time.Duration(c.length)
	end := units.Duration(length)
	scale := terminal.PadRight("0", c.bar-len([]rune(end))) + end
	if middle := units.Duration(length / 2); c.bar > 40 {
		half := c.bar/2 - len([]rune(middle))/2
		scale = terminal.PadRight(terminal.PadRight("0", half)+middle, c.bar-len([]rune(end))) + end
	}
	d.printf("%s\n", d.options.Style.Paint(terminal.Dim, strings.Repeat(" ", 2+c.name)+
		terminal.PadLeft("duration", timeWidth)+terminal.PadLeft("own", timeWidth)+"  "+scale))
}

func (d *drawing) row(c *canvas, r row) {
	n := &d.path.Nodes[r.node]
	style := d.options.Style
	mark, own := "  ", ""
	rank := d.options.Suspects[r.node]
	switch {
	case rank >= 1 && rank <= 9:
		mark = style.Paint(terminal.Yellow, strconv.Itoa(rank)) + " "
	case c.critical[r.node]:
		mark = style.Paint(terminal.Red, "●") + " "
	}
	if ns := c.own[r.node]; ns != 0 {
		own = units.Nanos(float64(ns))
	}
	name := terminal.PadRight(terminal.Shorten(indentation(r.depth, c.indent)+d.name(r), c.name), c.name)
	if c.critical[r.node] {
		name = style.Paint(terminal.Bold, name)
	}
	bar := d.bar(c, r.node)
	d.printf("%s%s%s%s  %s\n", mark, name, terminal.PadLeft(units.Duration(n.End.Sub(n.Start)), timeWidth),
		terminal.PadLeft(own, timeWidth), bar)
}

// indentation returns the text before the name of a span at the given depth. It consists of spaces or, if these would
// exceed `most` columns, of the depth as a number.
func indentation(depth, most int) string {
	if 2*depth > most {
		return strings.Repeat(" ", most-8) + fmt.Sprintf("[%d] ", depth)
	}
	return strings.Repeat("  ", depth)
}

// name returns the operation of r's span with its kind, failure and tracepoint. The name includes the service unless
// the parent is in the same service.
func (d *drawing) name(r row) string {
	n := &d.path.Nodes[r.node]
	s := &d.path.Trace.Spans[n.Span]
	name := d.table.OpName(s.Op)
	if r.depth == 0 || d.path.Trace.Spans[d.path.Nodes[n.Parent].Span].Service != s.Service {
		name = d.table.Text(s.Service) + " " + name
	}
	if s.Kind != trace.Server && s.Kind != trace.Internal && s.Kind != trace.Unspecified {
		name += " (" + s.Kind.String() + ")"
	}
	if rule, failed := s.Flags.FailedBy(); failed {
		name += " failed" + d.sign(n.Span, rule)
	}
	if s.Tracepoint != 0 {
		name += " +" + d.table.Text(s.Tracepoint)
	}
	if n.Root < 0 {
		name += " outside its parent"
	}
	return terminal.Printable(name)
}

// signs holds, by rule, the word for a failure and the attributes that may show it. The first key that the span has is
// used.
var signs = [trace.FailureRules]struct {
	word string
	keys []string
}{
	trace.ByHTTP: {"http", []string{"http.response.status_code", "http.status_code"}},
	trace.ByGRPC: {"grpc", []string{
		"rpc.response.status_code", "rpc.grpc.status_code", "rpc.connect_rpc.error_code", "grpc.status_code",
	}},
	trace.ByErrorType: {"error.type", []string{"error.type"}},
	trace.ByErrorTag:  {"tag error", []string{"error"}},
	trace.ByException: {"exception", nil},
}

// sign returns the evidence that the span failed under rule, with the value of the attribute if the span has it. It
// returns "" if the span failed by its status.
func (d *drawing) sign(span int32, rule trace.FailureRule) string {
	if rule == trace.ByStatus {
		return ""
	}
	text := ": " + signs[rule].word
	for _, key := range signs[rule].keys {
		switch a := d.attr(span, trace.SymbolOf([]byte(key))); {
		case a == nil:
		case a.Numeric:
			return text + " " + strconv.FormatFloat(a.Number, 'g', -1, 64)
		default:
			return text + " " + d.table.Text(a.Text)
		}
	}
	return text
}

// attr returns the attribute of span with the given key, or nil. Attributes aren't sorted by key, so the first call
// creates an index.
func (d *drawing) attr(span int32, key trace.Symbol) *trace.Attr {
	attrs := d.path.Trace.Attrs
	if d.attrs == nil {
		d.attrs = make(map[spanKey]*trace.Attr, len(attrs))
		for i := range attrs {
			d.attrs[spanKey{attrs[i].Span, attrs[i].Key}] = &attrs[i]
		}
	}
	return d.attrs[spanKey{span, key}]
}

type spanKey struct {
	span int32
	key  trace.Symbol
}

// bar draws the extent of node, with its own time on the critical path solid.
func (d *drawing) bar(c *canvas, node int32) string {
	n := &d.path.Nodes[node]
	cells := []rune(strings.Repeat(" ", c.bar))
	c.fill(cells, n.Start, n.End, '─')
	for _, s := range c.sections[node] {
		c.fill(cells, s.Start, s.End, '█')
	}
	return d.paint(strings.TrimRight(string(cells), " "))
}

// fill writes mark into the cells from start to end, at least into one cell.
func (c *canvas) fill(cells []rune, start, end trace.Nanos, mark rune) {
	from, to := c.column(start), c.column(end)
	if from >= len(cells) {
		from = len(cells) - 1
	}
	for i := max(from, 0); i < max(to, from+1) && i < len(cells); i++ {
		cells[i] = mark
	}
}

// column returns the column of the time t. The column may be just outside the canvas, because spans may exceed their
// parent.
func (c *canvas) column(t trace.Nanos) int {
	x := float64(t-c.start) / float64(c.length) * float64(c.bar)
	return int(min(max(x, -1), float64(c.bar)+1) + 0.5)
}

// paint colours the solid parts of bar, and dims the other parts.
func (d *drawing) paint(bar string) string {
	if !d.options.Style.Colour {
		return bar
	}
	var out strings.Builder
	for bar != "" {
		n := len(bar) - len(strings.TrimLeft(bar, "█"))
		out.WriteString(d.options.Style.Paint(terminal.Red, bar[:n]))
		bar = bar[n:]
		if n = strings.Index(bar, "█"); n < 0 {
			n = len(bar)
		}
		out.WriteString(d.options.Style.Paint(terminal.Dim, bar[:n]))
		bar = bar[n:]
	}
	return out.String()
}
