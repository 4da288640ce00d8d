package report

import (
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/sibyl-trace/sibyl/describe"
)

//go:embed report.css
var pageStyle string

//go:embed report.js
var pageScript string

// contentPolicy is the Content-Security-Policy of the page. It allows only inline styles and scripts.
const contentPolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; " +
	"form-action 'none'"

// render writes p as an HTML document.
func (p *page) render(w io.Writer) error {
	return document(
		w, p.ProblemCount+" in "+p.Traces, p.header(),
		h.Main(lines(p.incidentList(), p.problemList(), p.typeList())), footer(),
		h.Script(g.Raw("\n"+pageScript)),
	)
}

// document writes an HTML document with the given title and body. It escapes text and attribute values. The values in
// style attributes are numbers, so they need no escaping.
func document(w io.Writer, title string, body ...g.Node) error {
	return g.Group{g.Raw("<!DOCTYPE html>\n"), h.HTML(
		h.Lang("en"),
		lines(
			h.Head(lines(
				h.Meta(h.Charset("utf-8")),
				h.Meta(g.Attr("http-equiv", "Content-Security-Policy"), h.Content(contentPolicy)),
				h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
				h.Meta(h.Name("color-scheme"), h.Content("light dark")),
				h.TitleEl(g.Text("Sibyl: "+title)),
				h.StyleEl(g.Raw("\n"+pageStyle)),
			)),
			h.Body(lines(body...)),
		),
	)}.Render(w)
}

func (p *page) header() g.Node {
	title := "No problem found"
	if len(p.Problems) > 0 {
		title = p.ProblemCount
	}
	summary := p.Traces + ", " + p.Spans + "; " + p.Judged
	if p.Rejected != "" {
		summary += "; left out: " + p.Rejected
	}
	nodes := []g.Node{h.H1(g.Text(title)), quiet(summary + ". " + p.TypeCount + ", " + p.GroupCount + ".")}
	for _, text := range p.Coverage {
		nodes = append(nodes, quiet(text+"."))
	}
	for _, text := range p.Cut {
		nodes = append(nodes, h.P(h.Class("card"), g.Text(text+".")))
	}
	return h.Header(lines(nodes...))
}

func (p *page) incidentList() g.Node {
	if len(p.Incidents) == 0 {
		return nil
	}
	return lines(h.H2(h.ID("incidents"), g.Text("Incidents")), each(p.Incidents, (*pageIncident).article))
}

func (x *pageIncident) article() g.Node {
	return h.Article(h.Class("card problem changed"), lines(
		h.Div(h.Class("meta"), span(x.Began), span(x.Lasted)),
		h.H3(sentence(x.Sentence)),
	))
}

func (p *page) problemList() g.Node {
	if len(p.Problems) == 0 {
		return h.P(h.Class("card"), g.Text("Nothing stands out among the groups with enough requests. "),
			h.Code(g.Text("--min-samples")), g.Text(" and "), h.Code(g.Text("--cov-threshold")),
			g.Text(" set the limits; "), h.Code(g.Text("sibyl trace")), g.Text(" shows single traces."))
	}
	return lines(h.H2(h.ID("problems"), g.Text("Problems, worst first")), each(p.Problems, (*pageProblem).article),
		more(p.MoreProblems, "more"))
}

func (p *page) typeList() g.Node {
	if len(p.Types) == 0 {
		return nil
	}
	var index g.Node
	if len(p.Types) > 4 {
		index = h.Ul(h.Class("types"), each(p.Types, (*pageType).indexEntry))
	}
	noun := "more request types"
	if p.MoreTypes == 1 {
		noun = "more request type"
	}
	return lines(h.H2(h.ID("types"), g.Text("Request types")), index, each(p.Types, (*pageType).details),
		more(p.MoreTypes, noun))
}

func footer() g.Node {
	return h.Footer(g.Text("Made by "), h.B(g.Text("sibyl analyze")),
		g.Text(". Share of variance: the part of the spread of durations that an edge carries, "+
			"Cov(edge, duration) ÷ Var(duration); all edges of a row of statistics add up to 100 %. "+
			"CoV: standard deviation ÷ mean."))
}

func (p *pageProblem) article() g.Node {
	id := "problem-" + strconv.Itoa(p.Rank)
	class := "card problem"
	if p.Changed {
		class += " changed"
	}
	return h.Article(
		h.Class(class), h.Aria("labelledby", id),
		lines(
			h.Div(
				h.Class("meta"), h.Span(h.Class("what"), g.Text(strconv.Itoa(p.Rank)+" · "+p.Kind+", "+p.Onset)),
				span(p.Who), span(p.Requests),
				span("impact "+p.Impact), span("CoV "+p.CoV), link(p.Anchor, p.RequestType),
			),
			h.H3(h.ID(id), sentence(p.Diagnosis)),
			p.path(),
			edgeTable(p.Edges, p.ShareName, p.TailName),
			paragraph("path", p.MoreEdges),
			p.explanations(),
		),
	)
}

func (p *pageProblem) path() g.Node {
	if len(p.Path) == 0 {
		return nil
	}
	return h.P(h.Class("path"), g.Map(p.Path, span))
}

func (p *pageProblem) explanations() g.Node {
	var traces g.Node
	if len(p.Traces) > 0 {
		traces = h.Dd(h.P(sentence(p.Traces), h.Br(), h.Code(g.Text(p.Show))))
	}
	var list g.Group
	for _, e := range []struct {
		term   string
		detail g.Node
	}{
		{"size", sentences(p.Size)},
		{"because", sentences(p.Because...)},
		{"only on", sentences(p.OnlyOn...)},
		{"what if", sentences(p.WhatIf...)},
		{"traces", traces},
		{"next", sentences(p.Next...)},
	} {
		if e.detail != nil {
			list = append(list, g.Group{h.Dt(g.Text(e.term)), e.detail})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return h.Dl(lines(list...))
}

func (t *pageType) indexEntry() g.Node {
	return h.Li(link(t.Anchor, t.Name), g.Text(" "), h.Span(h.Class("quiet"), g.Text(t.Count+", CoV "+t.CoV)))
}

func (t *pageType) details() g.Node {
	ranks := g.Map(t.ProblemRanks, func(rank int) g.Node {
		number := strconv.Itoa(rank)
		return g.Group{g.Text(" "), link("problem-"+number, number)}
	})
	var problems g.Node
	if len(ranks) > 0 {
		problems = h.Span(h.Class("quiet"), g.Text("problem"), ranks)
	}
	var size, edges, moreEdges g.Node
	if len(t.Size) > 0 {
		size = h.P(sentence(t.Size))
	}
	if len(t.Edges) > 0 {
		edges = section("Where the time varies", edgeTable(t.Edges, "variance", "tail lift"))
		moreEdges = more(t.MoreEdges, "more")
	}
	return h.Details(
		h.Class("card"), h.ID(t.Anchor), g.If(t.Open, g.Attr("open")),
		lines(
			h.Summary(g.Text(t.Name+" "), problems), t.figures(), size, t.icicle(), edges, moreEdges,
			t.Histogram.nodes(), t.groupTable(),
		),
	)
}

func (t *pageType) figures() g.Node {
	figure := func(value, name string) g.Node {
		if value == "" {
			return nil
		}
		return h.Span(h.B(g.Text(value)), g.Text(name))
	}
	return h.Div(
		h.Class("figures"), figure(t.Count, "judged"), figure(t.P50, "median"), figure(t.P99, "p99"),
		figure(t.Mean, "mean"), figure(t.CoV, "CoV (95 %)"), figure(t.Between, "of the variance between groups"),
	)
}

func (t *pageType) icicle() g.Node {
	if len(t.Frames) == 0 {
		return nil
	}
	boxes := make(g.Group, len(t.Frames))
	for i := range t.Frames {
		boxes[i] = t.Frames[i].button(i == 0)
	}
	return lines(
		h.H4(g.Text("Critical path by calling context")),
		h.Div(
			h.Class("legend"), span("width: mean time on the critical path"), span("·"),
			span("colour: share of the variance in its own time, 0 %"), g.El("i", h.Aria("hidden", "true")),
			span("100 %"), span("(blue: below 0)"),
		),
		h.Div(
			h.Class("icicle"), h.Role("group"),
			h.Aria("label", "Critical path of "+t.Name+
				", a box per calling context; arrow keys move, Enter zooms, Escape shows all"),
			style(number{"rows", float64(t.Rows)}), lines(boxes...),
		),
		h.P(h.Class("detail"), h.Aria("live", "polite"),
			g.Text("Point at a box, or walk with the arrow keys; click or Enter zooms in, Escape shows all.")),
	)
}

// button returns the box of f as a button. Only the first box is in the tab order, because a script moves the focus
// from it to the others.
func (f *pageFrame) button(first bool) g.Node {
	tabIndex := "-1"
	if first {
		tabIndex = "0"
	}
	var share g.Node
	if f.Heat != 0 || f.Cold != 0 {
		share = g.El("em", g.Text(f.Share))
	}
	return h.Button(
		h.Type("button"), h.TabIndex(tabIndex),
		numeric(number{"data-row", float64(f.Row)}, number{"data-x", f.Left}, number{"data-w", f.Width}),
		h.Data("path", f.Path), h.Data("own", f.Own), h.Data("total", f.Total), h.Data("part", f.Part),
		h.Data("share", f.Share),
		style(number{"row", float64(f.Row)}, number{"x", f.Left}, number{"w", f.Width}, number{"heat", f.Heat},
			number{"chill", f.Cold}),
		h.Title(f.Name+": "+f.Total+", "+f.Own+" of its own, "+f.Share+" of the variance"), g.Text(f.Name), share,
	)
}

func (t *pageType) groupTable() g.Node {
	if len(t.Groups) == 0 {
		return nil
	}
	return g.Group{
		section("Groups: requests that took the same path", scrollable(h.Table(lines(
			h.THead(h.Tr(column("group"), numbers("requests", "median", "p99", "mean", "CoV (95 %)"),
				column("most of its variance"))),
			h.TBody(each(t.Groups, (*pageGroup).row)),
		)))),
		more(t.MoreGroups, "more"),
	}
}

func (p *pageGroup) row() g.Node {
	bins := ""
	if p.Bins != "" {
		bins = " " + p.Bins
	}
	return h.Tr(h.Td(h.Code(g.Text(p.ID)), g.Text(bins)), cells("n", p.Count, p.P50, p.P99, p.Mean, p.CoV),
		h.Td(g.Text(p.Where)))
}

// edgeTable returns a table of edges, or nil if edges is empty. shareName is the title of the column of shares, and
// tailName the title of the last column.
func edgeTable(edges []pageEdge, shareName, tailName string) g.Node {
	if len(edges) == 0 {
		return nil
	}
	return scrollable(h.Table(lines(
		h.THead(h.Tr(
			column("edge of the critical path"), numbers(shareName, "95 %"), h.Td(),
			numbers("mean", "of mean", tailName),
		)),
		h.TBody(each(edges, (*pageEdge).row)),
	)))
}

func (e *pageEdge) row() g.Node {
	return h.Tr(
		h.Th(h.Scope("row"), g.Text(e.Where)), cells("n", e.Share), cells("n quiet", e.Interval),
		h.Td(h.Class("whisker"), h.Aria("hidden", "true"), g.El("i", style(number{"v", e.Value})),
			h.B(style(number{"lo", e.Low}, number{"hi", e.High}))),
		cells("n", e.Mean), cells("n quiet", e.MeanShare), cells("n", e.Tail),
	)
}

// nodes returns hist as a drawing and as a table, or nil if it is empty.
func (hist *histogram) nodes() g.Node {
	if len(hist.Bars) == 0 {
		return nil
	}
	var bars, ticks, marks, rows g.Group
	for _, b := range hist.Bars {
		bars = append(bars, g.El("rect", numeric(number{"x", b.X}, number{"y", b.Y}, number{"width", b.Width},
			number{"height", b.Height}), g.El("title", g.Text(b.Range+": "+b.Count))))
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), g.Text(b.Range)), cells("n", b.Count)))
	}
	for _, t := range hist.Ticks {
		ticks = append(ticks, g.Group{line("axis", t.X, 110, t.X, 114), label("", t, 127)})
	}
	for _, t := range hist.Marks {
		marks = append(marks, g.Group{line("mark", t.X, -4, t.X, 110), label("marked", t, -7)})
	}
	return lines(
		h.H4(g.Text("Durations")),
		g.El("svg", g.Attr("viewBox", "-4 -16 608 148"), h.Role("img"), h.Aria("label", hist.Label),
			lines(bars...), lines(line("axis", 0, 110.5, 600, 110.5)), lines(ticks...), lines(marks...)),
		h.Details(h.Class("data"), h.Summary(g.Text("as a table")), h.Table(lines(
			h.THead(h.Tr(column("duration"), numbers("requests"))), h.TBody(lines(rows...)),
		))),
	)
}

// line returns an SVG line from (x1, y1) to (x2, y2).
func line(class string, x1, y1, x2, y2 float64) g.Node {
	return g.El("line", h.Class(class), numeric(number{"x1", x1}, number{"y1", y1}, number{"x2", x2}, number{"y2", y2}))
}

// label returns the text of t as SVG text at height y.
func label(class string, t tick, y float64) g.Node {
	return g.El("text", g.If(class != "", h.Class(class)), numeric(number{"x", t.X}, number{"y", y}),
		g.Attr("text-anchor", t.Anchor), g.Text(t.Text))
}

// The following functions return parts that occur in several places.

// lines returns nodes, each followed by a line break in the page's source. It skips nil nodes.
func lines(nodes ...g.Node) g.Node {
	all := g.Group{g.Raw("\n")}
	for _, n := range nodes {
		if n != nil {
			all = append(all, n, g.Raw("\n"))
		}
	}
	return all
}

// each returns the results of node for items, on separate lines.
func each[T any](items []T, node func(*T) g.Node) g.Node {
	nodes := make(g.Group, len(items))
	for i := range items {
		nodes[i] = node(&items[i])
	}
	return lines(nodes...)
}

// section returns title as a heading, followed by nodes.
func section(title string, nodes ...g.Node) g.Node {
	return g.Group{h.H4(g.Text(title)), g.Group(nodes)}
}

// scrollable makes table scroll if it is wider than the page.
func scrollable(table g.Node) g.Node { return h.Div(h.Class("scroll"), h.TabIndex("0"), table) }

// more returns a note that n items aren't shown, or nil if n is 0. noun is the name of the items.
func more(n int, noun string) g.Node {
	if n == 0 {
		return nil
	}
	return quiet(fmt.Sprintf("… and %d %s, in the JSON report.", n, noun))
}

func quiet(text string) g.Node { return paragraph("quiet", text) }

// paragraph returns text as a paragraph with the given class, or nil if text is empty.
func paragraph(class, text string) g.Node {
	if text == "" {
		return nil
	}
	return h.P(h.Class(class), g.Text(text))
}

func span(text string) g.Node { return h.Span(g.Text(text)) }

func link(anchor, text string) g.Node { return h.A(h.Href("#"+anchor), g.Text(text)) }

func sentence(s describe.Sentence) g.Node {
	var nodes g.Group
	for len(s) > 0 {
		n := 1 // phrases of equal emphasis
		for n < len(s) && s[n].Strong == s[0].Strong {
			n++
		}
		text := g.Text(s[:n].String())
		if s[0].Strong {
			text = h.Strong(text)
		}
		nodes, s = append(nodes, text), s[n:]
	}
	return nodes
}

// sentences returns a <dd> element with a paragraph for each sentence that isn't empty, or nil if all are empty.
func sentences(all ...describe.Sentence) g.Node {
	var paragraphs g.Group
	for _, s := range all {
		if len(s) > 0 {
			paragraphs = append(paragraphs, h.P(sentence(s)))
		}
	}
	if len(paragraphs) == 0 {
		return nil
	}
	return h.Dd(paragraphs)
}

// column returns the header of a text column.
func column(title string) g.Node { return h.Th(h.Scope("col"), g.Text(title)) }

// numbers returns the headers of columns of numbers.
func numbers(titles ...string) g.Node {
	return g.Map(titles, func(title string) g.Node { return h.Th(h.Scope("col"), h.Class("n"), g.Text(title)) })
}

// cells returns values as table cells with the given class.
func cells(class string, values ...string) g.Node {
	return g.Map(values, func(value string) g.Node { return h.Td(h.Class(class), g.Text(value)) })
}

// number is a numeric attribute or style property.
type number struct {
	name  string
	value float64
}

// numeric returns attributes as HTML attributes.
func numeric(attributes ...number) g.Node {
	return g.Map(attributes, func(n number) g.Node { return g.Attr(n.name, fmt.Sprint(n.value)) })
}

// style returns a style attribute with properties as custom properties.
func style(properties ...number) g.Node {
	declarations := make([]string, len(properties))
	for i, p := range properties {
		declarations[i] = "--" + p.name + ":" + fmt.Sprint(p.value)
	}
	return h.Style(strings.Join(declarations, ";"))
}
