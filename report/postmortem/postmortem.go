// Package postmortem writes an incident with its evidence as a document for people: as Markdown for a ticket, or as a
// self-contained HTML page without scripts for a post-mortem. Times are UTC. Equal reports give equal bytes. Text from
// traces and from people is escaped.
package postmortem

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Report is the input for a document: an incident and its evidence.
type Report struct {
	Detail *contract.IncidentDetail
	UI     string // base URL for links to the UI; may be empty
	At     time.Time
	// Latency holds the windows with requests of the incident's first request type, around the incident, oldest first.
	// Only HTML draws them. It is empty if the windows are no longer kept.
	Latency []contract.PastWindow
}

// document holds the contents of a document, independent of the format.
type document struct {
	severity contract.Severity
	title    string
	facts    []fact
	sections []section
	footer   string
}

type fact struct {
	name  string
	value cell
}

// section is a heading, followed by paragraphs, a table, a chart or quotes.
type section struct {
	title, note string
	head        []column
	rows        [][]cell
	chart       *chart
	quotes      []quote
}

type column struct {
	text   string
	number bool
}

// cell is the text of a table cell or fact. If name is true, HTML formats the text as code.
type cell struct {
	text string
	name bool
	link string
}

// quote is a text that a person wrote.
type quote struct{ by, text string }

// Limits on the document. The JSON of the API contains everything.
const (
	maxSuspects    = 5
	maxTypes       = 20
	maxPlaces      = 5
	suspectDetails = 3 // operations or instances per suspect
	likelyPart     = 0.05
)

func text(s string) cell { return cell{text: s} }

func name(s string) cell { return cell{text: s, name: true} }

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// newDocument arranges the evidence in r, most important first. It omits empty sections.
func newDocument(r *Report) *document {
	x := &r.Detail.Incident
	d := &document{severity: x.Severity, title: x.Sentence, facts: r.facts()}
	for _, s := range []section{
		r.next(), r.suspects(), r.places(), r.requestTypes(), r.latency(), r.objectives(), r.annotations(),
		r.timeline(), r.comments(), r.samples(), r.earlier(),
	} {
		if s.note != "" || len(s.rows) > 0 || len(s.quotes) > 0 || s.chart != nil {
			d.sections = append(d.sections, s)
		}
	}
	d.footer = "Incident " + x.ID + ", exported from Sibyl at " + clock(r.At) + ". All times are UTC."
	return d
}

// state returns a text that says whether x is open, how long it has lasted and, if it has closed, why it ended.
func state(x *contract.Incident, now time.Time) string {
	if x.Closed == nil {
		return "open for " + units.Span(now.Sub(x.Onset))
	}
	s := "closed, lasted " + units.Span(x.Ended.Sub(x.Onset))
	if x.End != nil {
		s += ": " + x.End.Text
	}
	return s
}

func (r *Report) facts() []fact {
	x := &r.Detail.Incident
	facts := []fact{
		{"Severity", text(strings.TrimSuffix(string(x.Severity)+". "+x.SeverityReason, ". "))},
		{"State", text(state(x, r.At))},
		{"Onset", text(clock(x.Onset) + ", by estimate")},
		{"Noticed", text(clock(x.Opened))},
	}
	if x.Closed != nil {
		facts = append(facts, fact{"Ended", text(clock(*x.Ended))}, fact{"Closed", text(clock(*x.Closed))})
	}
	if x.StoppedPerSecond != nil {
		until := ", none since the onset"
		if x.Closed != nil {
			until = ", none from the onset until it ended"
		}
		facts = append(facts, fact{"Came before", text(units.Rate(*x.StoppedPerSecond) + until)})
	} else {
		affected, share := units.Plural(len(x.RequestTypes), "request type"), 0.
		if f := x.Failures; f != nil {
			facts = append(facts, fact{"Failed", text(units.Percent(f.Before) + " → " + units.Percent(f.Now))})
			share = f.ShareOfRequests
		}
		if s := x.Size; s != nil {
			facts = append(facts, fact{"Mean", text(units.Nanos(s.BeforeNs) + " → " + units.Nanos(s.NowNs))})
			share = s.ShareOfRequests
		}
		if share > 0 {
			affected = units.Percent(share) + " of all requests, of " + affected
		}
		if x.Queue == nil || len(x.RequestTypes) > 0 {
			facts = append(facts, fact{"Affected", text(affected)})
		}
		facts = append(facts, fact{"Lost", text(Lost(x))})
	}
	if x.Owner != nil {
		facts = append(facts, fact{"Owner", text(owner(x.Owner))})
	}
	if a := x.Notes.Acknowledged; a != nil {
		facts = append(facts, fact{"Acknowledged", text(strings.TrimSuffix(a.By+": "+a.Text, ": "))})
	}
	if s := x.Silenced; s != nil {
		silenced := clock(s.Until) + " by " + s.By + ": " + s.Text
		facts = append(facts, fact{"Silenced until", text(strings.TrimSuffix(silenced, ": "))})
	}
	if r.UI != "" {
		url := r.UI + "/incidents/" + x.ID
		facts = append(facts, fact{"Page", cell{text: url, link: url}})
	}
	return facts
}

func owner(o *contract.Owner) string {
	if o.Contact == nil {
		return o.Name
	}
	return o.Name + " (" + *o.Contact + ")"
}

func (r *Report) next() section { return section{title: "Next step", note: r.Detail.Next} }

// Part is a part of a suspect's score.
type Part struct {
	Name  string
	Score float64
}

// leastPart is the smallest part of a score to show.
const leastPart = 0.005

// Parts returns the parts in s that are at least leastPart. It omits changed call flows, because they are not a part of
// the score.
func Parts(s *contract.SuspectParts) (parts []Part) {
	for _, x := range []Part{
		{"time in it", s.Own},
		{"time of calls that it adds", s.Added},
		{"time to it", s.In + s.Rest},
		{"time from it", s.Out},
		{"errors", s.Errors},
		{"unanswered calls", s.Unanswered},
		{"missing requests", s.Silent},
	} {
		if x.Score >= leastPart {
			parts = append(parts, x)
		}
	}
	return parts
}

func (r *Report) suspects() section {
	x := &r.Detail.Incident
	s := section{
		title: "Suspects",
		note: "Services that make requests slower or fail, the most likely cause first. 10 % means that requests " +
			"take a tenth longer, or that one in ten fails.",
		head: []column{{"Service", false}, {"Adds", true}, {"As", false}, {"Operations", false}, {"Mostly on", false}},
	}
	for i := range x.Suspects[:min(len(x.Suspects), maxSuspects)] {
		suspect := &x.Suspects[i]
		if i > 0 && suspect.Score < likelyPart*x.Suspects[0].Score {
			break
		}
		var parts, operations, instances []string
		for _, p := range Parts(&suspect.Parts) {
			parts = append(parts, p.Name+" "+units.Percent(p.Score))
		}
		for _, o := range suspect.Operations[:min(len(suspect.Operations), suspectDetails)] {
			operations = append(operations, operation(&o))
		}
		for _, on := range suspect.Instances[:min(len(suspect.Instances), suspectDetails)] {
			instances = append(instances,
				fmt.Sprintf("%s = %s (%s of the cost)", on.Key, on.Value, units.Percent(on.Part)))
		}
		s.rows = append(s.rows, []cell{
			name(suspect.Service), text(units.Percent(suspect.Score)), text(strings.Join(parts, ", ")),
			name(strings.Join(operations, ", ")), name(strings.Join(instances, ", ")),
		})
	}
	if len(s.rows) == 0 {
		return section{}
	}
	return s
}

func operation(o *contract.SuspectOperation) string {
	if o.Target == nil {
		return o.Service + " " + o.Operation
	}
	return o.Service + " " + o.Operation + " → " + o.Target.Service + " " + o.Target.Operation
}

// Place is an operation with its share of the added latency.
type Place struct {
	Operation string
	Share     contract.Interval
	Requests  int64 // number of requests that the share was measured in; 0: all requests
}

// Lost describes what requests, or messages, lose because of an incident.
func Lost(x *contract.Incident) string {
	if lost := units.Loss(x.Impact.LostNsPerSecond, x.Impact.FailedPerSecond); lost != "" {
		return lost
	}
	q := x.Queue
	switch {
	case x.StoppedPerSecond != nil && x.Closed == nil:
		return units.Rate(*x.StoppedPerSecond) + " of requests, which no longer come"
	case x.StoppedPerSecond != nil:
		return units.Rate(*x.StoppedPerSecond) + " of requests, which did not come"
	case q == nil:
		return "little"
	case q.BeforeNs == nil || q.NowNs == nil:
		return "no request waits, but messages do, in " + q.Name
	}
	return "no request waits, but a message does: " + units.Nanos(*q.BeforeNs) + " → " + units.Nanos(*q.NowNs) +
		" in " + q.Name
}

// Places returns the places that the search v found, most time first. Once the search has ended, it returns the places
// in located instead, because current requests lack the tracepoints that revealed the places. located may be nil: a
// search that ended without a place has nothing to show.
func Places(v *contract.Investigation, located *contract.LocatedPlace) []Place {
	var all []Place
	if located == nil && v.State == contract.StateGone {
		return nil
	}
	if located != nil && v.State != contract.StateOpened && v.State != contract.StateInvestigating {
		for i := range located.Frames {
			f := &located.Frames[i]
			all = append(all, Place{f.Operation, f.Share, f.Requests})
		}
		return all
	}
	for i := range v.Suspects {
		s := &v.Suspects[i]
		all = append(all, Place{s.Operation, s.Share, s.Requests})
	}
	return all
}

// places returns the section with the places where the search found the added latency.
func (r *Report) places() section {
	s := section{title: "Places", head: []column{{"Place", false}, {"Share of the added latency", true}}}
	if r.Detail.Investigation == nil {
		return s
	}
	all := Places(&r.Detail.Investigation.Investigation, r.Detail.Located)
	all = all[:min(len(all), maxPlaces)]
	sampled := slices.ContainsFunc(all, func(p Place) bool { return p.Requests > 0 })
	if sampled {
		s.head = append(s.head, column{"95 %", true}, column{"Requests", true})
	}
	for _, place := range all {
		row := []cell{name(place.Operation), text(share(&place.Share))}
		switch {
		case place.Requests > 0:
			row = append(row, text(interval(&place.Share)), text(units.Count(int(place.Requests))))
		case sampled:
			row = append(row, text(unknown), text(unknown))
		}
		s.rows = append(s.rows, row)
	}
	return s
}

const unknown = "–"

func share(x *contract.Interval) string {
	if x.Value == nil {
		return unknown
	}
	return units.Share(*x.Value)
}

func nanos(x *float64) string {
	if x == nil {
		return unknown
	}
	return units.Nanos(*x)
}

func interval(x *contract.Interval) string {
	if x.Low == nil || x.High == nil {
		return unknown
	}
	return units.Range(*x.Low, *x.High)
}

func (r *Report) requestTypes() section {
	s := section{
		title: "Affected request types",
		note:  "Since the onset, with usual values from before it.",
		head: []column{
			{"Request type", false},
			{"Mean", true},
			{"Usual mean", true},
			{"P99", true},
			{"Usual P99", true},
			{"Failed", true},
			{"Usually failed", true},
			{"Requests", true},
			{"In", true},
		},
	}
	all := r.Detail.Incident.RequestTypes
	for _, t := range all[:min(len(all), maxTypes)] {
		s.rows = append(s.rows, []cell{
			name(t.Name), text(units.Nanos(t.MeanNs)), text(units.Nanos(t.UsualNs)), text(nanos(t.P99Ns)),
			text(nanos(t.UsualP99Ns)), text(units.Percent(t.Failed)), text(units.Percent(t.UsualFailed)),
			text(units.Count(int(t.Requests))), text(lasting(t.SpanNs)),
		})
	}
	if more := len(all) - maxTypes; more > 0 {
		s.note += " The first " + units.Count(maxTypes) + " of " + units.Count(len(all)) + "."
	}
	return s
}

// lasting formats ns, the length of a time span in nanoseconds, or returns unknown if ns is 0.
func lasting(ns int64) string {
	if ns == 0 {
		return unknown
	}
	return units.Span(time.Duration(ns))
}

func (r *Report) latency() section {
	types := r.Detail.Incident.RequestTypes
	if len(types) == 0 {
		return section{}
	}
	c := newChart(r)
	if c == nil {
		return section{
			title: "Latency",
			note:  "The durations of " + types[0].Name + " around the incident are no longer kept.",
		}
	}
	return section{title: "Latency", note: "Mean and p99 of " + types[0].Name + ".", chart: c}
}

func (r *Report) objectives() section {
	s := section{
		title: "Missed objectives",
		head:  []column{{"Objective", false}, {"Burn rate", true}, {"Until", false}},
	}
	for _, o := range r.Detail.Incident.Objectives {
		s.rows = append(s.rows, []cell{text(o.Sentence), text(units.Ratio(o.BurnRate)), text(clock(o.At))})
	}
	return s
}

func (r *Report) annotations() section {
	s := section{title: "Annotations", head: []column{{"Time", false}, {"Kind", false}, {"Event", false}}}
	for i := range r.Detail.Incident.Annotations {
		x := &r.Detail.Incident.Annotations[i]
		s.rows = append(s.rows, []cell{text(clock(x.At)), text(string(x.Kind)), text(x.Title)})
	}
	return s
}

func (r *Report) timeline() section {
	s := section{title: "Timeline", head: []column{{"Time", false}, {"Event", false}}}
	for _, e := range r.Detail.Timeline {
		if e.Kind != contract.TimelineEntryKindCommented { // comments have their own section
			s.rows = append(s.rows, []cell{text(clock(e.At)), text(e.Text)})
		}
	}
	return s
}

func (r *Report) comments() section {
	s := section{title: "Comments"}
	for _, c := range r.Detail.Comments {
		by := c.By + ", " + clock(c.At)
		if c.Helped != nil && *c.Helped {
			by += ", this helped"
		}
		s.quotes = append(s.quotes, quote{by, c.Text})
	}
	return s
}

func (r *Report) samples() section {
	s := section{
		title: "Sample traces",
		head:  []column{{"Trace", false}, {"Began", false}, {"Took", true}, {"Request type", false}, {"", false}},
	}
	types := make(map[string]string)
	for _, t := range r.Detail.Incident.RequestTypes {
		types[t.ID] = t.Name
	}
	for _, e := range r.Detail.Exemplars {
		trace := name(e.Trace)
		if r.UI != "" {
			trace.link = r.UI + "/traces/" + e.Trace + "?incident=" + r.Detail.Incident.ID
		}
		s.rows = append(s.rows, []cell{
			trace, text(clock(e.Start)), text(units.Nanos(float64(e.DurationNs))),
			name(types[e.Group]), text(string(e.Stratum)),
		})
	}
	return s
}

func (r *Report) earlier() section {
	x := &r.Detail.Incident
	s := section{
		title: "Earlier incidents of the same service",
		head: []column{
			{"Began", false}, {"Lasted", true}, {"Severity", false}, {"Incident", false}, {"Helped", false},
		},
	}
	for _, e := range r.Detail.Earlier {
		incident := text(e.Sentence)
		if r.UI != "" {
			incident.link = r.UI + "/incidents/" + e.ID
		}
		helped := ""
		if e.Helped != nil {
			helped = *e.Helped
		}
		lasted := units.Span(e.Ended.Sub(e.Onset))
		s.rows = append(s.rows, []cell{
			text(clock(e.Onset)), text(lasted), text(string(e.Severity)), incident, text(helped),
		})
	}
	if n := int(x.Earlier); n > len(s.rows) {
		s.note = "The last " + units.Count(len(s.rows)) + " of " + units.Count(n) + "."
	}
	return s
}
