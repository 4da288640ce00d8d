package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the table. JSON contains everything.
const (
	shownEdges        = 4
	shownExplanations = 3
	shownContrasts    = 2
	shownRecoveries   = 2
	shownCommon       = 5
	shownPicks        = 5
	shownGroups       = 5 // of a request type
)

// Input describes the files of an analysis, for commands and warnings.
type Input struct {
	Files []string // file names, for commands
	Cut   []string // errors about files that end early
}

// Table writes r for a terminal: incidents, problems, then the request types and their groups. It shows at most `top`
// problems and request types, or all if `top` is 0.
func Table(w io.Writer, r *offline.Report, in Input, style terminal.Style, top int) error {
	t := table{names: newNames(r, terminal.Printable), style: style, top: top}
	t.names.files = in.Files
	t.heading(r, in.Cut)
	t.incidents(r.Incidents)
	t.problems(r)
	t.common(r.Common)
	t.groups(r.Groups)
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	names *names
	style terminal.Style
	top   int
	out   strings.Builder
}

func (t *table) printf(format string, args ...any) { fmt.Fprintf(&t.out, format, args...) }

// shown returns the number of entries to show out of n: at most t.top, or n if t.top is 0.
func (t *table) shown(n int) int {
	if t.top > 0 {
		return min(n, t.top)
	}
	return n
}

// more writes a note that `left` entries aren't shown, or nothing if `left` is 0. noun is the name of an entry.
func (t *table) more(left int, noun, indent string) {
	if left > 0 {
		t.printf("%s%s\n", indent,
			t.style.Paint(terminal.Dim, "… and "+units.Plural(left, "more "+noun)+" (--top 0 shows all)"))
	}
}

func (t *table) heading(r *offline.Report, cut []string) {
	var s describe.Sentence
	s.Plain(units.Plural(r.Traces, "trace") + ", " + units.Plural(r.Spans, "span") + "; " + judged(r))
	if left := rejections(r.Rejected); left != "" {
		s.Plain("; left out: " + left)
	}
	t.printf("%s", wrap(t.style, s, 0))
	t.writeCoverage(&r.Coverage)
	t.families(r.Families)
	for _, text := range cut {
		t.printf("%s\n", t.style.Paint(terminal.Red, terminal.Printable(text)))
	}
	if r.Refused > 0 {
		t.printf("too many groups: %s judged by request type only\n", units.Plural(int(r.Refused), "request"))
	}
	types, groups := levels(r.Groups)
	t.printf("%s, %s, ", units.Plural(types, "request type"), units.Plural(groups, "group"))
	found := units.Plural(len(r.Problems), "problem")
	if r.Incidents != nil && r.Incidents.Learned != 0 {
		found = units.Plural(len(r.Incidents.Incidents), "incident") + ", " + found
	}
	t.printf("%s\n", t.style.Paint(terminal.Bold, found))
	switch {
	case r.Judged == 0:
		t.printf("\nNo trace has a request that took time, so there " +
			"is nothing to judge. `sibyl trace` shows each trace.\n")
	case len(r.Problems) == 0:
		t.printf("\nNothing stands out among the groups with enough requests (--min-samples, --cov-threshold).\n")
	}
}

// families writes a warning about operation names that seem to contain IDs, if there are any.
func (t *table) families(all []trace.Family) {
	if saw, do := describe.Families(t.names.Names, all); saw != "" {
		var s describe.Sentence
		s.Plain(saw + " " + do)
		t.printf("%s", wrap(t.style, s, 0))
	}
}

// judged returns a text with the number of traces in the statistics.
func judged(r *offline.Report) string {
	missing := int(r.Coverage.Incomplete)
	if missing == 0 {
		return units.Plural(r.Judged, "complete trace") + " in the statistics"
	}
	return units.Plural(r.Judged, "trace") + " in the statistics, " +
		units.Count(missing) + " with missing spans: their parts are judged"
}

// rejections returns the reasons in rejected with their counts, most frequent first, as text.
func rejections(rejected map[trace.Reason]int) string {
	reasons := sorting.Sorted(maps.Keys(rejected), func(a, b trace.Reason) int {
		return cmp.Or(cmp.Compare(rejected[b], rejected[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, reason := range reasons {
		if rejected[reason] > 0 {
			parts = append(parts, units.Count(rejected[reason])+" "+strings.ReplaceAll(string(reason), "_", " "))
		}
	}
	return strings.Join(parts, ", ")
}

func levels(summaries []group.Summary) (types, groups int) {
	for i := range summaries {
		if summaries[i].Level == group.LevelRequestType {
			types++
		}
	}
	return types, len(summaries) - types
}

// incidents writes the incidents in r, which may be nil.
func (t *table) incidents(r *backtest.Result) {
	if r == nil || len(r.Incidents) == 0 {
		return
	}
	of := table{names: backtestNames(r, terminal.Printable), style: t.style}
	of.incidentList(r)
	t.printf("%s", of.out.String())
}

func (t *table) problems(r *offline.Report) {
	all, affected := r.Problems, affectedTypes(r)
	for i := range all[:t.shown(len(all))] {
		t.problem(i+1, &all[i], affected.onset(&all[i].Problem))
	}
	t.more(len(all)-t.shown(len(all)), "problem", "\n")
}

// requestTypes is a set of request types that incidents affect.
type requestTypes map[analysis.Hash]bool

// onset returns the name of p's onset, or a text saying that p is part of an incident if an incident affects its
// requests.
func (affected requestTypes) onset(p *detect.Problem) string {
	if affected[p.RequestType] {
		return "part of an incident"
	}
	return p.Onset.String()
}

// affectedTypes returns the request types that the incidents in r affect.
func affectedTypes(r *offline.Report) requestTypes {
	affected := make(requestTypes)
	if r.Incidents == nil {
		return affected
	}
	for i := range r.Incidents.Incidents {
		for _, t := range r.Incidents.Incidents[i].Types {
			affected[t.RequestType] = true
		}
	}
	return affected
}

// problem writes r, which has the given rank and onset: title, diagnosis, edges, causes, exemplars, next steps.
func (t *table) problem(rank int, r *offline.Problem, onset string) {
	p := &r.Problem
	t.title(rank, p, onset)
	t.printf("%s", wrap(t.style, describe.Diagnosis(t.names.Names, p, 0, 0), 4))
	t.edges(p)
	t.place(p)
	if s := sizeSentence(p.Size); len(s) > 0 {
		t.labelled("size", 0, s)
	}
	because := t.names.because(p)
	for i, s := range because[:min(shownExplanations, len(because))] {
		t.labelled("because", i, s)
	}
	causes := describe.NewCauses(t.names.Names, p, &r.Findings)
	for i := range causes.Contrasts[:min(shownContrasts, len(causes.Contrasts))] {
		t.labelled("only on", i, causes.Contrasts[i].Sentence)
	}
	recoveries := recoveries(&causes)
	for i, s := range recoveries[:min(shownRecoveries, len(recoveries))] {
		t.labelled("what if", i, s)
	}
	if s := t.names.exemplars(r); len(s) > 0 {
		t.labelled("traces", 0, s)
		// not wrapped, so that it can be copied
		t.printf("%s%s\n", strings.Repeat(" ", margin), t.style.Paint(terminal.Dim, t.names.show(r)))
	}
	next := t.names.next(r)
	for i, s := range next[:min(shownPicks, len(next))] {
		t.labelled("next", i, s)
	}
}

func (t *table) title(rank int, p *detect.Problem, onset string) {
	kind := p.Kind.String() + ", " + onset
	rest := who(p) + " · " + units.Plural(int(p.Requests), "request") + " · impact " + describe.PerSecond(p.Impact)
	t.printf("\n%s  %s%s\n", terminal.PadLeft(strconv.Itoa(rank), 2), t.style.Paint(onsetColour(p.Onset), kind),
		terminal.Shorten(rest, t.style.Line()-4-len(kind)))
}

func onsetColour(o detect.Onset) string {
	if o == detect.Changed {
		return terminal.Red
	}
	return terminal.Yellow
}

// who returns a text that names the requests that p is about: all of the type, or a group.
func who(p *detect.Problem) string {
	if p.Level == group.LevelRequestType {
		return " · all of the type"
	}
	return " · group " + p.Group.String()[:8]
}

// edges writes the first edges of p with their shares.
func (t *table) edges(p *detect.Problem) {
	if len(p.Edges) == 0 {
		return
	}
	head, tail := "tail lift", func(e *group.EdgeShare) float64 { return e.TailLift }
	if p.Kind != detect.KindVariable {
		head, tail = "excess", func(e *group.EdgeShare) float64 { return e.Excess }
	}
	t.printf("%s\n", t.style.Paint(terminal.Dim, "    "+terminal.PadRight("share of "+shareOf(p), 18+t.barWidth())+
		terminal.PadLeft("mean", 9)+terminal.PadLeft(head, 11)+"  where"))
	for i := range p.Edges[:min(shownEdges, len(p.Edges))] {
		e := &p.Edges[i]
		where := terminal.Shorten(t.names.Edge(e), t.style.Line()-44-t.barWidth())
		if i == 0 {
			where = t.style.Paint(terminal.Bold, where)
		}
		t.printf("    %s %s%s%s  %s  %s\n",
			terminal.PadLeft(units.Percent(e.Score), 6), terminal.PadRight(interval(p, e), 11),
			t.style.Paint(terminal.Yellow, terminal.Bar(e.Score, t.barWidth())),
			terminal.PadLeft(units.Nanos(e.Mean), 9), terminal.PadLeft(units.Signed(tail(e)), 9), where)
	}
}

// barWidth returns the width of bars, or 0 if they are omitted to leave room for the names.
func (t *table) barWidth() int {
	if t.style.Roomy() {
		return 10
	}
	return 0
}

// wholes holds the names of the quantities that the shares of edges refer to.
var wholes = [...]string{detect.WholeSlowdown: "slowdown", detect.WholeVariance: "variance", detect.WholeMean: "mean"}

// shareOf returns the name of the quantity that the shares of p's edges refer to.
func shareOf(p *detect.Problem) string { return wholes[p.Whole] }

// hasIntervals reports whether the intervals of p's edges apply to their shares. Intervals are known only for shares of
// the whole variance.
func hasIntervals(p *detect.Problem) bool {
	return p.Whole == detect.WholeVariance && p.Onset == detect.Chronic
}

// interval returns the interval of e's share in p, like "(79–87)", or "" if it is unknown.
func interval(p *detect.Problem, e *group.EdgeShare) string {
	if !hasIntervals(p) {
		return ""
	}
	if r := units.Range(e.ShareLow, e.ShareHigh); r != units.Unknown {
		return "(" + r + ")"
	}
	return ""
}

// place writes the calling context of p's leading edge, because the name of the edge doesn't include it.
func (t *table) place(p *detect.Problem) {
	if e := describe.Leading(p); e != nil && e.Edge != 0 {
		t.labelled("path", 0, describe.Sentence{{Text: strings.Join(t.names.Context(e.Context), " › ")}})
	}
}

// common writes the places whose times correlate across request types.
func (t *table) common(all []explain.CommonEdges) {
	for i := range all[:min(shownCommon, len(all))] {
		t.printf("\n")
		t.labelled("together", 0, describe.NewCommon(t.names.Names, &all[i]).Sentence)
	}
}

// margin is the width of the label column.
const margin = 13

// labelled writes text, the text with index i of a list. It writes label, the label of the list, in the margin of the
// first text only.
func (t *table) labelled(label string, i int, text describe.Sentence) {
	if i > 0 {
		label = ""
	}
	body := strings.TrimLeft(wrap(t.style, text, margin), " ")
	t.printf("    %s%s", t.style.Paint(terminal.Dim, terminal.PadRight(label, margin-4)), body)
}

// because returns sentences about the explanations of p. It uses only the first explanation for each variable and
// place, because a variable that explains the duration may also explain edges.
func (n *names) because(p *detect.Problem) []describe.Sentence {
	type variable struct {
		name  string
		where trace.Context
	}
	seen := make(map[variable]bool)
	var all []describe.Sentence
	for i := range p.Explanations {
		x := &p.Explanations[i]
		if v := (variable{x.Variable, x.Where}); !seen[v] {
			seen[v] = true
			all = append(all, n.explanation(p, x))
		}
	}
	return all
}

// explanation returns a sentence about x, with the variable and the share of the variance that the variable explains.
func (n *names) explanation(p *detect.Problem, x *detect.Explanation) describe.Sentence {
	var s describe.Sentence
	variable, where := n.Variable(x)
	s.Strong(variable)
	s.Plain(where + ": " + units.Percent(x.Effect))
	if r := units.Range(x.Low, x.High); r != units.Unknown {
		s.Plain(" (" + r + ")")
	}
	s.Plain(" of the variance" + n.target(p, x))
	if x.PValue == x.PValue {
		s.Plain(", p " + describe.PValue(x.PValue))
	}
	return s
}

// target returns a phrase with the edge that x explains, or "" if x explains the duration.
func (n *names) target(p *detect.Problem, x *detect.Explanation) string {
	for i := range p.Edges {
		if e := &p.Edges[i]; x.Target != 0 && e.Edge == x.Target {
			return " of " + n.Edge(e)
		}
	}
	return ""
}

// recoveries returns sentences about the recoveries in c that are large enough to matter.
func recoveries(c *describe.Causes) []describe.Sentence {
	var all []describe.Sentence
	for i := range c.WhatIf {
		if x := &c.WhatIf[i]; x.Matters() {
			all = append(all, x.Sentence)
		}
	}
	return all
}

// groups writes the request types in all, each followed by its groups.
func (t *table) groups(all []group.Summary) {
	if len(all) == 0 {
		return
	}
	head := terminal.PadLeft("requests", 10) + terminal.PadLeft("p50", 10) + terminal.PadLeft("p99", 10) +
		terminal.PadLeft("CoV", 6)
	if t.style.Roomy() {
		head += terminal.PadRight(" (95 %)", 13) + terminal.PadLeft("mean", 9)
	}
	t.printf("\n%s\n",
		t.style.Paint(terminal.Dim, terminal.Shorten(head+"  request type, groups, where they vary", t.style.Line())))
	types, inType := 0, 0
	total, _ := levels(all)
	for i := range all {
		if all[i].Level == group.LevelRequestType {
			types, inType = types+1, 0
		} else {
			inType++
		}
		if types > t.shown(total) {
			break
		}
		if t.top == 0 || inType <= shownGroups {
			t.summary(&all[i])
		}
		if last := i+1 == len(all) || all[i+1].Level == group.LevelRequestType; last && t.top > 0 {
			t.more(inType-shownGroups, "group", strings.Repeat(" ", t.groupColumn()+2))
		}
	}
	t.more(total-t.shown(total), "request type", "")
}

// groupColumn returns the column that the names of request types start in.
func (t *table) groupColumn() int {
	if t.style.Roomy() {
		return 3*10 + 6 + 13 + 9 + 2
	}
	return 3*10 + 6 + 2
}

func (t *table) summary(s *group.Summary) {
	t.printf("%s%s%s%s", terminal.PadLeft(units.Count(int(s.Count)), 10), terminal.PadLeft(units.Duration(s.P50), 10),
		terminal.PadLeft(units.Duration(s.P99), 10), terminal.PadLeft(units.Ratio(s.CoV), 6))
	if t.style.Roomy() {
		t.printf("%s%s", terminal.PadRight(covInterval(s), 13), terminal.PadLeft(units.Duration(s.Mean), 9))
	}
	name := t.summaryName(s, t.style.Line()-t.groupColumn())
	if s.Level == group.LevelRequestType {
		name = t.style.Paint(terminal.Bold, name)
	}
	t.printf("  %s\n", name)
}

// covInterval returns the interval of the CoV in s, like " (0.71–0.93)", or "" if it is unknown.
func covInterval(s *group.Summary) string {
	if s.CoVLow != s.CoVLow || s.CoVHigh != s.CoVHigh {
		return ""
	}
	return " (" + units.Ratio(s.CoVLow) + "–" + units.Ratio(s.CoVHigh) + ")"
}

// minBetween is the smallest share of the variance between groups to show.
const minBetween = 0.1

// betweenGroups returns the share of the variance in s, a request type, that lies between its groups, as text, or "" if
// the share is below minBetween.
func betweenGroups(s *group.Summary) string {
	if !(s.Between >= minBetween) {
		return ""
	}
	return ", " + units.Percent(s.Between) + " of the variance between groups"
}

// summaryName returns the name of s, in at most `room` columns: a request type with the share of its variance between
// groups, or the ID of a group with the place where it varies most.
func (t *table) summaryName(s *group.Summary, room int) string {
	if s.Level == group.LevelRequestType {
		return fitting(room, t.names.RequestType(s.ID, s.Entry), betweenGroups(s))
	}
	name, where := "  "+s.ID.String()[:8], ""
	if bins := t.names.Bins(s); bins != "" {
		name += "  " + bins
	}
	// shares from few requests are noise, up to 60,000 %
	if order := byVariance(s.Edges); len(order) > 0 && s.CoVLow == s.CoVLow {
		if e := &s.Edges[order[0]]; e.ShareVariance == e.ShareVariance {
			where = "  " + units.Percent(e.ShareVariance) + " " + t.names.Edge(e)
		}
	}
	if len(s.Bins) == 0 {
		return terminal.Shorten(name+where, room)
	}
	return fitting(room, name, where)
}

// fitting returns name followed by details if both fit into `room` columns. Otherwise, it returns name, shortened if
// necessary.
func fitting(room int, name, details string) string {
	if terminal.Width(name+details) <= room {
		return name + details
	}
	return terminal.Shorten(name, room)
}
