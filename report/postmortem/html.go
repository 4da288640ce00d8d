package postmortem

import (
	_ "embed"
	"io"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/sibyl-trace/sibyl/api/contract"
)

//go:embed postmortem.css
var style string

// contentPolicy is the Content-Security-Policy of the page. It prevents the page from loading or running anything.
const contentPolicy = "default-src 'none'; style-src 'unsafe-inline'"

// signs distinguishes severities for readers who can't see colours.
var signs = map[contract.Severity]string{
	contract.SeverityCritical: "▲", contract.SeverityMajor: "◆", contract.SeverityMinor: "●",
}

// HTML writes r as one self-contained page.
func HTML(w io.Writer, r *Report) error {
	d := newDocument(r)
	return g.Group{g.Raw("<!DOCTYPE html>\n"), h.HTML(
		h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(g.Attr("http-equiv", "Content-Security-Policy"), h.Content(contentPolicy)),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.Meta(h.Name("referrer"), h.Content("no-referrer")),
			h.TitleEl(g.Text(d.title)),
			h.StyleEl(g.Raw("\n"+style)),
		),
		h.Body(h.Main(
			h.P(h.Class("severity "+string(d.severity)), h.Span(h.Aria("hidden", "true"), g.Text(signs[d.severity])),
				g.Text(" "+string(d.severity)+" incident")),
			h.H1(g.Text(d.title)),
			h.Dl(g.Map(d.facts, fact.node)),
			g.Map(d.sections, section.node),
			h.Footer(h.P(g.Text(d.footer))),
		)),
	)}.Render(w)
}

func (f fact) node() g.Node {
	return g.Group{g.Raw("\n"), h.Div(h.Dt(g.Text(f.name)), h.Dd(f.value.node()))}
}

func (c cell) node() g.Node {
	n := g.Text(strings.ReplaceAll(c.text, " %", "\u00a0%"))
	if c.name && c.text != "" {
		n = h.Code(n)
	}
	if c.link != "" {
		n = h.A(h.Href(c.link), n)
	}
	return n
}

func (s section) node() g.Node {
	var note, table, drawing g.Node
	if s.note != "" {
		note = h.P(g.If(len(s.rows) > 0 || s.chart != nil, h.Class("note")), g.Text(s.note))
	}
	if len(s.rows) > 0 {
		table = s.table()
	}
	if s.chart != nil {
		drawing = s.chart.node()
	}
	return g.Group{g.Raw("\n"), h.Section(h.H2(g.Text(s.title)), note, drawing, table, g.Map(s.quotes, quote.node))}
}

func (s section) table() g.Node {
	class := func(column int) g.Node { return g.If(s.head[column].number, h.Class("n")) }
	var head, rows g.Group
	for i, c := range s.head {
		head = append(head, h.Th(h.Scope("col"), class(i), g.Text(c.text)))
	}
	for _, row := range s.rows {
		var cells g.Group
		for i, c := range row {
			cells = append(cells, h.Td(class(i), c.node()))
		}
		rows = append(rows, g.Raw("\n"), h.Tr(cells))
	}
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("region"), h.Aria("label", s.title),
		h.Table(h.THead(h.Tr(head)), h.TBody(rows)))
}

func (q quote) node() g.Node {
	return h.Figure(h.BlockQuote(g.Text(q.text)), h.FigCaption(g.Text(q.by)))
}

// viewBox is the view box of the chart's SVG image. It is larger than the chart, to leave margins for the labels.
const viewBox = "-80 -24 1000 256"

func (c *chart) node() g.Node {
	line := func(class string, x1, y1, x2, y2 float64) g.Node {
		return g.El("line", h.Class(class), g.Attr("x1", fixed(x1)), g.Attr("y1", fixed(y1)), g.Attr("x2", fixed(x2)),
			g.Attr("y2", fixed(y2)))
	}
	label := func(x, y float64, anchor, text string) g.Node {
		return g.El("text", g.Attr("x", fixed(x)), g.Attr("y", fixed(y)), g.Attr("text-anchor", anchor), g.Text(text))
	}
	var nodes g.Group
	for _, m := range c.levels {
		nodes = append(nodes, line("grid", 0, m.at, chartWidth, m.at), label(-8, m.at+4, "end", m.text))
	}
	for _, m := range c.ticks {
		nodes = append(nodes, label(m.at, chartHeight+20, "middle", m.text))
	}
	for _, m := range c.marks {
		nodes = append(nodes, line("mark", m.at, 0, m.at, chartHeight), label(m.at, -8, "middle", m.text))
	}
	draw := func(class string, lines []string) {
		for _, points := range lines {
			nodes = append(nodes, g.El("polyline", h.Class(class), g.Attr("points", points)))
		}
	}
	draw("p99", c.p99)
	draw("mean", c.mean)
	return g.Group{
		g.El("svg", g.Attr("viewBox", viewBox), h.Role("img"), h.Aria("label", c.label),
			line("axis", 0, chartHeight, chartWidth, chartHeight), nodes),
		h.P(h.Class("note"), h.Span(h.Class("key mean"), g.Text("mean")), g.Text(" "),
			h.Span(h.Class("key p99"), g.Text("p99"))),
	}
}
