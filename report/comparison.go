package report

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// shownOperations is the maximum number of operations per suspect in the table.
const shownOperations = 3

// Labels name the sides of a comparison.
type Labels struct {
	Window, Baseline string
	Sets             bool // the sides are sets of files, whose times have no order
}

// ComparisonTable writes c for a terminal: one sentence, the suspects with their operations, and the request types that
// are slower. It shows at most `top` suspects and request types, or all if `top` is 0.
func ComparisonTable(w io.Writer, c *offline.Comparison, labels Labels, style terminal.Style, top int) error {
	n := comparisonNames(c, terminal.Printable)
	t := table{names: n, style: style, top: top}
	slower := slowerTypes(c)
	t.printf("%s\n", wrap(style, numbersOf(c, labels).Sentence(n.Names), 0))
	t.side(labels.Window, &c.Window, "")
	t.side(labels.Baseline, &c.Baseline, around(c))
	t.writeCoverage(&c.Coverage)
	t.usual(c)
	t.suspects(c)
	t.slower(slower)
	_, err := io.WriteString(w, t.out.String())
	return err
}

func comparisonNames(c *offline.Comparison, clean func(string) string) *names {
	n := describe.New(c.Table, clean)
	for i := range c.RequestTypes {
		n.Add(&c.RequestTypes[i].Type)
	}
	return &names{Names: n}
}

// slowerTypes returns the request types of c that are slower, which come first in c.RequestTypes.
func slowerTypes(c *offline.Comparison) []offline.TypeChange {
	n := 0
	for n < len(c.RequestTypes) && c.RequestTypes[n].Slower() {
		n++
	}
	return c.RequestTypes[:n]
}

// numbersOf returns the values for the sentence about c.
func numbersOf(c *offline.Comparison, labels Labels) *describe.Comparison {
	d := &describe.Comparison{
		When:     "than before",
		Types:    len(c.RequestTypes),
		Slower:   len(slowerTypes(c)),
		Suspects: c.Suspects,
		Usual:    c.Usual,
	}
	if !labels.Sets {
		d.When = describe.Period(c.Window.Interval, c.Window.Open,
			!describe.OneDay(c.Window.Interval, c.Baseline.Interval)).String()
	}
	for i := range c.RequestTypes {
		if !c.RequestTypes[i].Judged() {
			d.Unjudged++
		}
	}
	return d
}

func around(c *offline.Comparison) string {
	if c.Around {
		return "; before and after the window, because few traces begin before it"
	}
	return ""
}

// side writes label, the time range and the number of traces of s, and note.
func (t *table) side(label string, s *offline.Side, note string) {
	const second = trace.Nanos(1e9)
	from, to := describe.Clock(s.Interval.From-s.Interval.From%second, true), (s.Interval.To+second-1)/second*second
	text := from + " – " + describe.Clock(to, !describe.OneDay(s.Interval)) + " UTC, " +
		units.Plural(s.Traces, "trace") + note
	t.labelled(label, 0, describe.Sentence{{Text: text}})
}

// usual writes the median and the maximum of the scores that suspects get without a change.
func (t *table) usual(c *offline.Comparison) {
	if len(c.Usual) == 0 {
		return
	}
	median := scoreText(describe.Number(stats.Median(slices.Clone(c.Usual))))
	highest := scoreText(describe.Number(slices.Max(c.Usual)))
	text := units.Count(len(c.Usual)) + " parts of the baseline of " + units.Plural(c.Window.Traces, "trace") +
		" each: median score " + median + ", highest " + highest
	t.labelled("usual", 0, describe.Sentence{{Text: text}})
}

// partColumns are the columns of the parts of a score.
var partColumns = []struct {
	head  string
	width int
	of    func(*describe.SuspectParts) describe.Number
}{
	{"own", 7, func(p *describe.SuspectParts) describe.Number { return p.Own }},
	{"added", 8, func(p *describe.SuspectParts) describe.Number { return p.Added }},
	{"to", 7, func(p *describe.SuspectParts) describe.Number { return p.In + p.Rest }},
	{"from", 7, func(p *describe.SuspectParts) describe.Number { return p.Out }},
	{"errors", 8, func(p *describe.SuspectParts) describe.Number { return p.Errors }},
	{"unanswered", 12, func(p *describe.SuspectParts) describe.Number { return p.Unanswered }},
	{"calls", 7, func(p *describe.SuspectParts) describe.Number { return p.Shape }},
}

// leastScore is the smallest score in the table. Lower scores would round to 0.00.
const leastScore = 0.005

// scoreText formats a score or a part of a score.
func scoreText(x describe.Number) string {
	switch {
	case x == 0:
		return "0"
	case x < leastScore:
		return "<0.01"
	}
	return units.Ratio(float64(x))
}

// Widths of columns of a comparison.
const (
	rankWidth  = 2
	scoreWidth = 7
)

// partsWidth returns the total width of partColumns, or 0 if they are omitted to leave room for the names.
func (t *table) partsWidth() (width int) {
	if t.style.Roomy() {
		for _, p := range partColumns {
			width += p.width
		}
	}
	return width
}

// suspects writes the suspects with a score of at least leastScore.
func (t *table) suspects(c *offline.Comparison) {
	found := 0
	for found < len(c.Suspects) && c.Suspects[found].Score >= leastScore {
		found++
	}
	if found == 0 {
		return
	}
	var head strings.Builder
	head.WriteString(terminal.PadLeft("score", rankWidth+scoreWidth))
	if t.partsWidth() > 0 {
		for _, p := range partColumns {
			head.WriteString(terminal.PadLeft(p.head, p.width))
		}
	}
	t.printf("\n%s\n", t.style.Paint(terminal.Dim, head.String()+"  suspect, operations"))
	exceeded := false
	for i := range c.Suspects[:t.shown(found)] {
		s := describe.NewSuspect(t.names.Names, &c.Suspects[i])
		t.suspect(i+1, t.names.NamedService(c.Suspects[i].Service), s)
		exceeded = exceeded || len(s.Operations) > 0 && s.Operations[0].Score >= s.Score+leastScore
	}
	t.more(found-t.shown(found), "suspect", "")
	legend := "Scores are per request, beyond the variation of the baseline. " +
		"own, added, to, from: added time in the service, in calls that " +
		"it makes more often, to and from it, in " +
		"mean durations of a request (" + units.Nanos(c.Mean) +
		"). errors, unanswered, calls: failures that begin there, calls that it " +
		"does not answer, and requests in which it makes other calls."
	if exceeded {
		legend += " An operation may score more than its service: it includes time to and from other services, " +
			"which they explain."
	}
	t.printf("\n%s", t.paintLines(legend))
}

// paintLines returns wrapped, dimmed text.
func (t *table) paintLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(t.style.Wrap(text, 0)) {
		b.WriteString(t.style.Paint(terminal.Dim, strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// suspect writes the line of s, which has the given rank and name, and its first operations.
func (t *table) suspect(rank int, name string, s describe.Suspect) {
	if !s.EmitsSpans {
		name += " (emits no spans)"
	}
	var parts strings.Builder
	if t.partsWidth() > 0 {
		for _, p := range partColumns {
			text := "·"
			if x := p.of(&s.Parts); x > 0 {
				text = scoreText(x)
			}
			parts.WriteString(terminal.PadLeft(text, p.width))
		}
	}
	room := t.style.Line() - rankWidth - scoreWidth - t.partsWidth() - 2
	t.printf("%s%s%s  %s\n", terminal.PadLeft(strconv.Itoa(rank), rankWidth),
		terminal.PadLeft(scoreText(s.Score), scoreWidth), parts.String(),
		t.style.Paint(terminal.Bold, terminal.Shorten(name, room)))
	operations := slices.DeleteFunc(slices.Clone(s.Operations),
		func(o describe.SuspectOperation) bool { return o.Score < leastScore })
	for i := range operations[:min(shownOperations, len(operations))] {
		o := &operations[i]
		name := t.names.Op(o.Op)
		if o.Service == s.Service {
			name = strings.TrimPrefix(name, s.Service+" ")
		}
		if o.Kind == trace.Client.String() && o.Target == nil {
			name += " (client)"
		}
		t.printf("%s%s    %s\n",
			terminal.PadLeft(scoreText(o.Score), rankWidth+scoreWidth), strings.Repeat(" ", t.partsWidth()),
			terminal.Shorten(name, room-2))
	}
	if left := len(operations) - shownOperations; left > 0 {
		t.printf("%s%s\n", strings.Repeat(" ", rankWidth+scoreWidth+t.partsWidth()+4),
			t.style.Paint(terminal.Dim, "… and "+units.Plural(left, "more operation")))
	}
}

// slower writes the table of types, the request types that are slower.
func (t *table) slower(types []offline.TypeChange) {
	if len(types) == 0 {
		return
	}
	const column = 10
	head := terminal.PadLeft("mean", column) + terminal.PadLeft("baseline", column) +
		terminal.PadLeft("change", column) + terminal.PadLeft("requests", column)
	t.printf("\n%s\n", t.style.Paint(terminal.Dim, terminal.Shorten(head+"  slower request type", t.style.Line())))
	for i := range types[:t.shown(len(types))] {
		x := &types[i]
		t.printf("%s%s%s%s  %s\n",
			terminal.PadLeft(units.Duration(x.Type.Mean), column), terminal.PadLeft(units.Duration(x.Expected), column),
			terminal.PadLeft(units.Signed(float64(x.Type.Mean-x.Expected)), column),
			terminal.PadLeft(units.Count(int(x.Type.Count)), column),
			terminal.Shorten(t.names.RequestType(x.Type.ID, x.Type.Entry), t.style.Line()-4*column-2))
	}
	t.more(len(types)-t.shown(len(types)), "request type", "")
}

// ComparisonJSON writes c as one JSON object. Times are in nanoseconds. Unknown values are null.
func ComparisonJSON(w io.Writer, c *offline.Comparison, labels Labels) error {
	n := comparisonNames(c, describe.Verbatim)
	suspects := make([]describe.Suspect, 0, len(c.Suspects))
	for i := range c.Suspects {
		suspects = append(suspects, describe.NewSuspect(n.Names, &c.Suspects[i]))
	}
	types := make([]jsonTypeChange, 0, len(c.RequestTypes))
	for i := range c.RequestTypes {
		types = append(types, n.jsonTypeChange(&c.RequestTypes[i]))
	}
	o := objectWriter{out: w}
	o.field("sentence", numbersOf(c, labels).Sentence(n.Names).String())
	o.field("coverage", n.jsonCoverage(&c.Coverage))
	o.field("window", jsonSideOf(&c.Window))
	baseline := struct {
		jsonSide

		Around bool            `json:"around_window"` // it has traces before and after the window
		Mean   describe.Number `json:"mean_ns"`       // of a trace; the unit of times in scores
	}{jsonSideOf(&c.Baseline), c.Around, describe.Number(c.Mean)}
	o.field("baseline", baseline)
	usual := make([]describe.Number, 0, len(c.Usual))
	for _, x := range c.Usual {
		usual = append(usual, describe.Number(x))
	}
	o.field("usual_scores", usual)
	o.list("suspects", len(suspects), func(i int) any { return suspects[i] })
	o.list("request_types", len(types), func(i int) any { return types[i] })
	return o.end()
}

// jsonSide is one side of a comparison: the traces that start in [From, To).
type jsonSide struct {
	From   trace.Nanos `json:"from_unix_nano"`
	To     trace.Nanos `json:"to_unix_nano"`
	Traces int         `json:"traces"`
}

func jsonSideOf(s *offline.Side) jsonSide {
	return jsonSide{s.Interval.From, s.Interval.To, s.Traces}
}

type jsonTypeChange struct {
	RequestType   string          `json:"request_type"`
	RequestTypeID string          `json:"request_type_id"`
	Service       string          `json:"service"` // service of the entry operation
	Operation     string          `json:"operation"`
	Slower        *bool           `json:"slower"` // null if there are too few requests to judge
	Requests      uint64          `json:"requests"`
	Failed        uint64          `json:"failed"`
	Baseline      uint64          `json:"baseline_requests"`
	MeanNS        int64           `json:"mean_ns"`
	ExpectedNS    *int64          `json:"expected_ns"` // mean in the baseline
	ExcessNS      describe.Number `json:"excess_ns"`   // excess of the mean over the variation of the baseline
}

func (n *names) jsonTypeChange(x *offline.TypeChange) jsonTypeChange {
	j := jsonTypeChange{
		RequestType:   n.RequestType(x.Type.ID, x.Type.Entry),
		RequestTypeID: x.Type.ID.String(),
		Service:       n.Service(x.Type.Entry),
		Operation:     n.OpName(x.Type.Entry),
		Requests:      x.Type.Count,
		Failed:        x.Type.Failed,
		Baseline:      x.Baseline,
		MeanNS:        x.Type.Mean.Nanoseconds(),
		ExcessNS:      describe.Number(x.Rise),
	}
	if x.Judged() {
		slower := x.Slower()
		j.Slower = &slower
	}
	if x.Baseline > 0 {
		expected := x.Expected.Nanoseconds()
		j.ExpectedNS = &expected
	}
	return j
}
