package client

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/report/postmortem"
)

// page collects the output, so that it is written in one piece.
type page struct {
	out   strings.Builder
	style terminal.Style
	now   time.Time
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *page) flush(w io.Writer) error {
	_, err := io.WriteString(w, p.out.String())
	return err
}

func (p *page) bold(text string) string { return p.style.Paint(terminal.Bold, text) }
func (p *page) dim(text string) string  { return p.style.Paint(terminal.Dim, text) }

// clean escapes text from traces for a terminal.
func clean(text string) string { return terminal.Printable(text) }

// of returns *x, or NaN if x is nil, which means unknown.
func of(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

func nanos(x *int64) string {
	if x == nil {
		return units.Unknown
	}
	return units.Duration(time.Duration(*x))
}

// perSecond formats added latency in ns per second. x is nil if unknown.
func perSecond(x *float64) string {
	switch ns := of(x); {
	case ns != ns:
		return "unknown"
	case ns < 1:
		return "none"
	default:
		return units.Nanos(ns) + "/s"
	}
}

// loses returns the added latency per second as an item of a list, or "" if it is zero or unknown.
func loses(x *float64) string {
	if of(x) >= 1 {
		return "loses " + perSecond(x) + ", "
	}
	return ""
}

func (p *page) since(t *time.Time) string {
	if t == nil {
		return "start unknown"
	}
	return "since " + t.Local().Format("15:04:05") + " (" + units.Coarse(p.now.Sub(*t)) + ")"
}

// period returns the time when a problem opened or, if it is closed, the time when it closed and how long it was open,
// as text.
func (p *page) period(x *contract.Problem) string {
	if x.Closed == nil {
		return p.since(x.Since)
	}
	text := "closed " + x.Closed.Local().Format("Jan 2 15:04")
	if x.Since != nil {
		text += " after " + units.Coarse(x.Closed.Sub(*x.Since))
	}
	return text
}

func intervalText(x contract.Interval) string {
	if x.Low == nil || x.High == nil {
		return units.Ratio(of(x.Value))
	}
	return units.Ratio(of(x.Value)) + " (" + units.Ratio(*x.Low) + "–" + units.Ratio(*x.High) + ")"
}

// ShowProblems writes the problems in list, in this order.
func ShowProblems(w io.Writer, list *contract.ProblemList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	switch {
	case list.Learning && len(list.Items) == 0:
		p.learning("problems", list.LearningLeftNs)
	case len(list.Items) == 0:
		p.printf("No problem matches.\n")
	}
	if len(list.Items) > 0 {
		since := "SINCE"
		if list.Items[0].Closed != nil {
			since = "CLOSED"
		}
		p.printf("%s\n", p.dim(problemRow("RANK", "ID", "STATE", since, "LOST", "P50", "P99")))
	}
	for i := range list.Items {
		x := &list.Items[i]
		since := "chronic"
		switch {
		case x.Closed != nil:
			since = units.Coarse(now.Sub(*x.Closed)) + " ago"
		case x.Since != nil:
			since = units.Coarse(now.Sub(*x.Since))
		}
		p.printf("%s\n", problemRow(strconv.Itoa(x.Rank), x.ID[:8], problemState(x), since, perSecond(x.Impact),
			nanos(x.P50Ns), nanos(x.P99Ns)))
		attribute := terminal.Yellow
		if x.Onset == contract.OnsetChanged {
			attribute = terminal.Red
		}
		for line := range strings.Lines(style.Wrap(clean(x.Diagnosis), rankWidth+2)) {
			p.printf("%s\n", style.Paint(attribute, strings.TrimRight(line, "\n")))
		}
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	if len(list.Items) > 0 {
		p.printf("\n%s", p.hint("LOST: time lost per second, over all requests. sibyl problems ID (or RANK) "+
			"shows a problem with its evidence.", 0))
	}
	return p.flush(w)
}

// hint returns text, dimmed and wrapped into lines that are indented by n spaces.
func (p *page) hint(text string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(p.style.Wrap(text, n)) {
		b.WriteString(p.dim(strings.TrimRight(line, "\n")) + "\n")
	}
	return b.String()
}

// rankWidth is the width of the column of ranks.
const rankWidth = 4

func problemRow(rank, id, state, since, lost, p50, p99 string) string {
	return terminal.PadLeft(rank, rankWidth) + "  " + terminal.PadRight(id, 8) + "  " + terminal.PadRight(state, 17) +
		"  " + terminal.PadRight(since, 11) +
		"  " + terminal.PadLeft(lost, 9) + "  " + terminal.PadLeft(p50, 7) + "  " + terminal.PadLeft(p99, 7)
}

// stateText returns the name of an investigation's state, as in the web UI. It renames two states, because "exhausted"
// suggests a full pool or disk, and "gone" a loss.
func stateText(s contract.State) string {
	if s == contract.StateExhausted {
		return "inconclusive"
	}
	if s == contract.StateGone {
		return "ended"
	}
	return string(s)
}

// problemState returns the state of a problem's investigation as text. An open problem without an investigation is part
// of an incident, queued or not searched.
func problemState(x *contract.Problem) string {
	switch {
	case x.Closed != nil || x.State != contract.StateNone:
		return stateText(x.State)
	case x.Incident != nil:
		return incidentName(x)
	case x.Kind == contract.KindShifted && len(x.Leading) == 0: // only added latency is searched for
		return "not searched"
	}
	return "queued"
}

// incidentName returns a name for the incident that contains x. x.Incident must not be nil.
func incidentName(x *contract.Problem) string { return "incident " + (*x.Incident)[:8] }

// learning writes that Sibyl doesn't report anything of the given kind yet. If left isn't nil, it also writes the
// remaining time, which left holds in ns.
func (p *page) learning(kind string, left *int64) {
	if left == nil {
		p.printf("Sibyl is learning normal behaviour, and reports no %s yet.\n", kind)
		return
	}
	p.printf("Sibyl is learning normal behaviour. It reports %s after %s more of traffic.\n",
		kind, units.Left(time.Duration(*left)))
}

// problem writes a problem in three lines: rank, kind and state; the diagnosis; the figures.
func (p *page) problem(x *contract.Problem) {
	attribute := terminal.Yellow
	if x.Onset == contract.OnsetChanged {
		attribute = terminal.Red
	}
	state := problemState(x)
	if x.Closed == nil && x.Incident != nil {
		state = "part of " + incidentName(x)
	}
	p.printf("%s %s  %s  %s", p.bold(fmt.Sprintf("%3d", x.Rank)),
		p.style.Paint(attribute, string(x.Onset)+", "+string(x.Kind)), state, p.period(x))
	for _, n := range notes(&x.Notes) {
		p.printf("  %s", n)
	}
	p.printf("\n%s", p.style.Wrap(clean(x.Diagnosis), 4))
	p.printf("%s", p.hint(fmt.Sprintf("ID %s, %sP50 %s, P99 %s, CoV %s, rate %s%s",
		x.ID[:8], loses(x.Impact), nanos(x.P50Ns), nanos(x.P99Ns),
		intervalText(x.Cov), units.Rate(of(x.Rate)), within(x)), 4))
	if x.Why != nil {
		p.printf("%s", p.style.Wrap(clean(*x.Why), 4))
	}
}

// within returns, as an item of a list, the number of requests that the figures of a problem are based on and the time
// that they arrived in. It returns "" if the rate is unknown.
func within(x *contract.Problem) string {
	if rate := of(x.Rate); rate > 0 {
		return ", " + units.Count(int(x.Requests)) + " in " +
			units.Span(time.Duration(float64(x.Requests)/rate*float64(time.Second)))
	}
	return ""
}

// Limits on the evidence shown. JSON output contains all of it.
const (
	shownEdges        = 6
	leastEdge         = 0.005 // minimum share for showing edges after the first
	shownExplanations = 5
	shownCauses       = 3
	shownSuspects     = 3
	shownDecisions    = 12
)

// ShowProblem writes a problem with its evidence.
func ShowProblem(w io.Writer, d *contract.ProblemDetail, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	p.problem(&d.Problem)
	p.printf("\n%s\n%s", p.bold("Next step"), style.Wrap(clean(d.Next), 2))
	if x := d.Problem.Incident; x != nil && d.Problem.Closed == nil {
		p.printf("  %s\n", p.dim("sibyl incidents "+(*x)[:8]+" shows the incident."))
	}
	p.edges(d)
	if len(d.Explanations) > 0 {
		p.printf("\n%s\n", p.bold("Correlated with"))
		seen := make(map[string]bool) // a variable may explain the duration and several edges
		for i := range d.Explanations {
			x := &d.Explanations[i]
			if len(seen) < shownExplanations && !seen[x.Text] {
				seen[x.Text] = true
				p.printf("  %-5s %s\n", units.Percent(of(x.Effect.Value)), clean(x.Text))
			}
		}
	}
	p.causes(d)
	if d.Investigation != nil {
		p.investigation(d.Investigation, d.Located)
	}
	p.timeline(d.Decisions)
	return p.flush(w)
}

// minRecovery is the minimum recovery to show, as a fraction of the mean or of the p99.
const minRecovery = 0.05

// causes writes the slower hosts and versions, the recoveries of at least minRecovery, and the places whose times are
// correlated.
func (p *page) causes(d *contract.ProblemDetail) {
	var only, gains, together []string
	for i := range d.Contrasts {
		only = append(only, d.Contrasts[i].Text)
	}
	for i := range d.WhatIf {
		if x := &d.WhatIf[i]; of(x.MeanFraction) >= minRecovery || of(x.P99Fraction) >= minRecovery {
			gains = append(gains, x.Text)
		}
	}
	for i := range d.Common {
		together = append(together, d.Common[i].Text)
	}
	p.lines("Slower than others", only)
	p.lines("What if", gains)
	p.lines("Rise and fall together", together)
}

// lines writes the first shownCauses lines in `all` below a title, or nothing if `all` is empty.
func (p *page) lines(title string, all []string) {
	if len(all) == 0 {
		return
	}
	p.printf("\n%s\n", p.bold(title))
	for _, line := range all[:min(len(all), shownCauses)] {
		p.printf("%s", p.style.Wrap(clean(line), 2))
	}
}

func (p *page) edges(d *contract.ProblemDetail) {
	if len(d.Edges) == 0 || of(d.Edges[0].Score) == 0 { // requests are no slower: no place has a share
		return
	}
	p.printf("\n%s\n", p.bold("Where the "+whole(&d.Problem)+" is"))
	share := func(e *contract.Edge) float64 { return of(e.Score) }
	edges, shown := d.Edges, 0
	for i := range edges[:min(len(edges), shownEdges)] {
		e := &edges[i]
		if i > 0 && !(share(e) >= leastEdge) { // or if the share is unknown
			break
		}
		shown++
		line := fmt.Sprintf("%s per request", units.Nanos(of(e.MeanNs)))
		if x := of(e.ExcessNs.Value); x > 0 {
			line += ", " + units.Signed(x) + " above the expectation"
		}
		p.entry(units.Share(share(e)), clean(e.Place.Label), line)
	}
	switch more := len(edges) - shown; {
	case more > 0 && shown < shownEdges:
		p.printf("  %s\n", p.dim(fmt.Sprintf("… and %s with less than %s each",
			units.Plural(more, "more place"), units.Percent(leastEdge))))
	case more > 0:
		p.printf("  %s\n", p.dim("… and "+units.Plural(more, "more place")))
	}
}

// whole returns the name of the quantity that the shares of a problem refer to, as used in the problem's diagnosis.
func whole(x *contract.Problem) string {
	switch {
	case x.Kind == contract.KindShifted:
		return "change"
	case x.ShareOf == contract.ProblemShareOfVariance:
		return "variance"
	}
	return "slowdown"
}

// entry writes number, text and note. The note starts a new line if it doesn't fit after the text.
func (p *page) entry(number, text, note string) {
	const column = 10
	p.printf("  %s %s", terminal.PadLeft(number, column-3), text)
	if column+terminal.Width(text)+1+terminal.Width(note) > p.style.Line() {
		p.printf("\n%s", strings.Repeat(" ", column-1))
	}
	p.printf(" %s\n", p.dim(note))
}

// investigation writes the state of a search, and the places that take the most time.
func (p *page) investigation(d *contract.InvestigationDetail, located *contract.LocatedPlace) {
	v := &d.Investigation
	p.printf("\n%s %s", p.bold("Investigation"), stateText(v.State))
	if v.On > 0 || v.Tried > 0 {
		p.printf(", %s on, %s tried", units.Plural(v.On, "tracepoint"), units.Count(v.Tried))
	}
	p.printf("\n")
	if v.Reason != "" {
		p.printf("%s", p.style.Wrap(clean(v.Reason), 2))
	}
	places := postmortem.Places(v, located)
	for _, x := range places[:min(len(places), shownSuspects)] {
		p.printf("  %s %s\n", terminal.PadLeft(units.Share(of(x.Share.Value)), 6), clean(x.Operation))
	}
	for i := range d.Requested {
		p.printf("  on: %s %s\n", clean(d.Requested[i].Tracepoint), p.dim(clean(d.Requested[i].Cause)))
	}
}

// timeline writes the latest shownDecisions decisions, oldest first. decisions must be latest first.
func (p *page) timeline(decisions []contract.Decision) {
	if len(decisions) == 0 {
		return
	}
	p.printf("\n%s\n", p.bold("Decisions"))
	for i := min(len(decisions), shownDecisions) - 1; i >= 0; i-- {
		x := &decisions[i]
		p.event(x.At, x.Text)
	}
}

// event writes the local time `at`, followed by text.
func (p *page) event(at time.Time, text string) {
	p.printf("  %s  %s\n", clock(at), strings.TrimSpace(p.style.Wrap(clean(text), len("  15:04:05  "))))
}

// ShowTracepoints writes tracepoints as a table.
func ShowTracepoints(w io.Writer, list *contract.TracepointList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf(
			"No tracepoint matches. Sibyl learns tracepoints from agents and from spans with sibyl.tracepoint.id.\n")
		return p.flush(w)
	}
	width := len("TRACEPOINT")
	for i := range list.Items {
		width = max(width, terminal.Width(list.Items[i].Name))
	}
	width = min(width, max(24, style.Line()-64))
	row := func(state, name, share, bytes, cpu, until, why string) {
		line := fmt.Sprintf("%-9s  %s  %s  %s  %s  %s  %s",
			state, terminal.PadRight(terminal.Shorten(name, width), width), terminal.PadLeft(share, 6),
			terminal.PadLeft(bytes, 10), terminal.PadLeft(cpu, 9), terminal.PadRight(until, 7), why)
		p.printf("%s\n", strings.TrimRight(line, " "))
	}
	row("STATE", "TRACEPOINT", "SHARE", "BYTES/S", "CPU", "UNTIL", "WHY")
	for i := range list.Items {
		x := &list.Items[i]
		until, why := p.reason(x)
		row(string(x.State), clean(x.Name), units.Percent(of(x.Share)), amount(x.Cost.Bytes), cpu(x.Cost.CPU), until,
			clean(why))
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	p.printf("%s\n", p.dim(
		"BYTES/S and CPU are estimates for all requests; SHARE is the fraction of requests with the tracepoint on."))
	return p.flush(w)
}

// agentColumn is the width of the columns of services and agents.
const agentColumn = 28

// ShowAgents writes the number of agents in each state, and a line per agent.
func ShowAgents(w io.Writer, list *contract.AgentList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	t := list.Total
	p.printf("Agents: %d with the current plan, %d behind, %d lost.\n", t.Current, t.Behind, t.Lost)
	if list.Conflicts > 0 {
		p.printf("%s\n", style.Paint(terminal.Yellow, fmt.Sprintf("Agents used the ID of another agent in %s: "+
			"give each its own ID.", units.Plural(int(list.Conflicts), "message"))))
	}
	if len(list.Items) == 0 {
		p.printf("No agent matches. docs/agents.md describes how agents connect.\n")
		return p.flush(w)
	}
	row := func(state, service, id, on, failed, catalogue, seen, why string) {
		line := fmt.Sprintf("%-7s  %s  %s  %s  %s  %s  %s  %s",
			state, terminal.PadRight(terminal.Shorten(service, agentColumn), agentColumn),
			terminal.PadRight(terminal.Shorten(id, agentColumn), agentColumn), terminal.PadLeft(on, 5),
			terminal.PadLeft(failed, 6), terminal.PadLeft(catalogue, 9),
			terminal.PadLeft(seen, 7), why)
		p.printf("%s\n", strings.TrimRight(line, " "))
	}
	row("STATE", "SERVICE", "AGENT", "ON", "FAILED", "CATALOGUE", "SEEN", "")
	for i := range list.Items {
		x := &list.Items[i]
		why := ""
		switch {
		case x.Problem != nil:
			why = clean(*x.Problem)
		case !x.CatalogueComplete:
			why = "its catalogue is incomplete"
		case x.Conflicts > 0:
			why = "another agent used its ID in " + units.Plural(x.Conflicts, "message")
		}
		row(string(x.State), clean(x.Service), clean(x.ID), strconv.Itoa(x.Applied), strconv.Itoa(x.Failed),
			strconv.Itoa(x.Catalogue), units.Coarse(now.Sub(x.Seen)), why)
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	return p.flush(w)
}

func amount(x *float64) string {
	if b := of(x); b > 0 {
		return units.Bytes(int64(math.Ceil(b)))
	}
	return units.Unknown
}

// cpu formats CPU seconds per second. x is nil if unknown.
func cpu(x *float64) string {
	if s := of(x); s > 0 {
		return units.Nanos(s*float64(time.Second)) + "/s"
	}
	return units.Unknown
}

// reason returns the time until the state of a tracepoint ends, or "" if the state doesn't end, and the reason for the
// state.
func (p *page) reason(x *contract.Tracepoint) (until, why string) {
	if o := x.Override; o != nil {
		if o.Until != nil {
			until = "+" + units.Coarse(o.Until.Sub(p.now))
		}
		return until, fmt.Sprintf("%s by %s", overrideVerbs[o.Kind], o.By)
	}
	for i := range x.Leases {
		if l := &x.Leases[i]; i == 0 || l.Cause != "" {
			until, why = "+"+units.Coarse(l.Expires.Sub(p.now)), l.Cause
			if l.Owner != "" {
				why += " (problem " + l.Owner[:8] + ")"
			}
		}
	}
	return until, why
}

// overrideVerbs maps each kind of override to its participle.
var overrideVerbs = map[contract.OverrideKind]string{
	contract.OverrideKindEnable: "enabled", contract.OverrideKindPin: "pinned",
	contract.OverrideKindForbid: "forbidden",
}

// ShowDeadLetters writes dead letters, each with its last error.
func ShowDeadLetters(w io.Writer, list *contract.DeadLetterList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("There are no dead letters.\n")
	}
	for i := range list.Items {
		p.deadLetter(&list.Items[i])
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	return p.flush(w)
}

func (p *page) deadLetter(x *contract.DeadLetter) {
	p.printf("%s %s to %s as %s, %s ago\n", p.bold(terminal.PadLeft(x.Number, 5)), clean(x.Type), clean(x.Endpoint),
		x.Format, units.Coarse(p.now.Sub(x.At)))
	p.printf("%s", p.style.Wrap(clean(units.Plural(x.Attempts, "attempt")+": "+x.Error), 6))
}

// ShowDeadLetter writes a dead letter with its body.
func ShowDeadLetter(w io.Writer, d *contract.DeadLetterDetail, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	p.deadLetter(&d.Letter)
	p.printf("\n%s\n", clean(d.Body))
	return p.flush(w)
}
