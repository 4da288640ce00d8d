package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// shownSuspects is the maximum number of suspects per incident in the table.
const shownSuspects = 3

// BacktestTable writes r for a terminal: each incident with its suspects and a sentence, and the score if it was
// computed.
func BacktestTable(w io.Writer, r *backtest.Result, style terminal.Style) error {
	t := table{names: backtestNames(r, terminal.Printable), style: style}
	t.backtestHeading(r)
	if len(r.Incidents) > 0 {
		t.incidentList(r)
	}
	if r.Score != nil {
		t.score(r.Score)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

func backtestNames(r *backtest.Result, clean func(string) string) *names {
	n := describe.New(r.Table, clean)
	for i := range r.Types {
		n.Add(&r.Types[i])
	}
	return &names{Names: n}
}

// wholeSecond returns t rounded down to a whole second.
func wholeSecond(t trace.Nanos) trace.Nanos { return t - t%1e9 }

func (t *table) backtestHeading(r *backtest.Result) {
	if r.Misdated > 0 {
		t.printf("ignored %s far before or after the others, from wrong clocks\n", units.Plural(r.Misdated, "trace"))
	}
	t.printf("%s from %s to %s UTC; ", units.Plural(r.Traces, "trace"), describe.Clock(wholeSecond(r.From), true),
		describe.Clock(wholeSecond(r.To), true))
	if r.Learned == 0 {
		t.printf("%s\n", unlearned(r))
		t.writeCoverage(&r.Coverage)
		return
	}
	t.printf("the engine learned until %s\n", describe.Clock(r.Learned, false))
	t.writeCoverage(&r.Coverage)
	t.families(r.Table.Families())
	t.printf("%s\n", t.style.Paint(terminal.Bold, units.Plural(len(r.Incidents), "incident")))
}

// unlearned returns the reason why the engine never looked for incidents.
func unlearned(r *backtest.Result) string {
	total := r.Coverage.Total()
	if total.Received().Spans > 0 && total.Judged().Spans == 0 {
		return "no span is part of a request that could be judged, so no incident could be reported"
	}
	return "incidents need nine minutes of history, so none could be reported"
}

// Widths of columns of the table of incidents.
const (
	beganWidth  = 21
	openedWidth = 10
	lastedWidth = 13
)

// incidentList writes the table of incidents.
func (t *table) incidentList(r *backtest.Result) {
	t.printf("\n%s\n", t.style.Paint(terminal.Dim, terminal.PadRight("began", beganWidth)+
		terminal.PadRight("opened", openedWidth)+terminal.PadRight("lasted", lastedWidth)+"suspects"))
	for i := range r.Incidents {
		if i > 0 {
			t.printf("\n")
		}
		t.incident(r, &r.Incidents[i])
	}
}

// incident writes the line of x, its sentence, and the reason for its end. Note that an incident opens a few minutes
// after its onset.
func (t *table) incident(r *backtest.Result, x *engine.Incident) {
	lasted := "open"
	if !x.IsOpen() {
		lasted = units.Span(x.Lasted(0))
	}
	var suspects []string
	all := 0.0
	for i := range x.Suspects {
		all += x.Suspects[i].Score
	}
	for i := range x.Suspects[:min(shownSuspects, len(x.Suspects))] {
		s := &x.Suspects[i]
		if s.Score < leastScore {
			break
		}
		cost := units.Percent(s.Score / all)
		if s.Queue() != nil { // requests don't wait for it
			cost = "takes messages late"
		}
		suspects = append(suspects, t.names.NamedService(s.Service)+" "+cost)
	}
	room := t.style.Line() - beganWidth - openedWidth - lastedWidth
	t.printf("%s%s%s%s\n", terminal.PadRight(describe.Clock(x.Onset, true), beganWidth),
		terminal.PadRight(describe.Clock(wholeSecond(x.Opened()), false), openedWidth),
		terminal.PadRight(lasted, lastedWidth),
		t.style.Paint(terminal.Bold, terminal.Shorten(strings.Join(suspects, ", "), room)))
	t.printf("%s", wrap(t.style, t.names.incident(x).Sentence, 2))
	if !x.IsOpen() {
		t.printf("%s", wrap(t.style, describe.Transition(t.names.Names, new(x.Last())), 2))
	}
	if r.Score != nil {
		t.printf("  %s\n", t.style.Paint(terminal.Dim, terminal.Shorten(verdict(r.Score, x.ID), t.style.Line()-2)))
	}
}

// verdict returns a text that lists the faults that the incident id detected, or calls the incident false if it
// detected no fault.
func verdict(s *backtest.Score, id uint64) string {
	var raised []string
	for i := range s.Cases {
		if c := &s.Cases[i]; c.Raised && c.Incident == id {
			raised = append(raised, terminal.Printable(c.Name))
		}
	}
	if len(raised) == 0 {
		return "false: it raised none of the faults"
	}
	return "raised " + strings.Join(raised, ", ")
}

// incident returns the texts about x. The sentence includes dates only if x started and ended on different days.
func (n *names) incident(x *engine.Incident) *describe.Incident {
	return describe.NewIncident(n.Names, x, x.Onset)
}

// score writes s as a table with a row for each fault. Below it, score writes the number of false incidents, the cases
// whose service was not the first suspect of an incident, and the labels that were not scored.
func (t *table) score(s *backtest.Score) {
	column := func(text string) string { return terminal.PadLeft(text, 10) }
	const faultWidth = 24
	row := func(name string, x *backtest.Sum) {
		t.printf("%s%s%s%s%s\n",
			terminal.PadRight(terminal.Shorten(name, faultWidth), faultWidth), column(strconv.Itoa(x.Cases)),
			column(units.Percent(x.Raised)), column(units.Percent(x.Top1)), column(units.Percent(x.Top3)))
	}
	t.printf("\n%s\n", t.style.Paint(terminal.Dim,
		terminal.PadRight("fault", faultWidth)+column("cases")+column("raised")+column("first")+column("in three")))
	for _, fault := range slices.Sorted(maps.Keys(s.ByFault)) {
		sum := s.ByFault[fault]
		row(cmp.Or(terminal.Printable(fault), "(no kind)"), &sum)
	}
	row("all", &s.All)
	t.printf("%s in %s healthy hours\n",
		units.Plural(len(s.False), "false incident"), strconv.FormatFloat(s.HealthyHours, 'f', 1, 64))
	for i := range s.Cases {
		c := &s.Cases[i]
		switch {
		case !c.Raised:
			t.printf("  not raised: %s (%s)\n", terminal.Printable(c.Name), terminal.Printable(c.Service))
		case c.RankService == nil:
			t.printf("  raised, not suspected: %s (%s)\n", terminal.Printable(c.Name), terminal.Printable(c.Service))
		case *c.RankService > 1:
			t.printf("  raised, suspect %d: %s (%s)\n",
				*c.RankService, terminal.Printable(c.Name), terminal.Printable(c.Service))
		}
	}
	for _, name := range s.Outside {
		t.printf("  not scored: %s lies outside of the recording, or in its first nine minutes\n",
			terminal.Printable(name))
	}
}

// BacktestJSON writes r as one JSON object. Times are in nanoseconds since 1970.
func BacktestJSON(w io.Writer, r *backtest.Result) error {
	n := backtestNames(r, describe.Verbatim)
	o := objectWriter{out: w}
	o.field("traces", r.Traces)
	o.field("misdated", r.Misdated)
	o.field("coverage", n.jsonCoverage(&r.Coverage))
	o.field("from_unix_nano", r.From)
	o.field("to_unix_nano", r.To)
	o.field("learning_until_unix_nano", optionalTime(r.Learned))
	o.list("incidents", len(r.Incidents), func(i int) any { return n.jsonIncident(&r.Incidents[i]) })
	if r.Score != nil {
		o.field("score", r.Score)
	}
	return o.end()
}

// optionalTime returns a pointer to t, or nil if t is 0, for JSON.
func optionalTime(t trace.Nanos) *trace.Nanos {
	if t == 0 {
		return nil
	}
	return &t
}

type jsonIncident struct {
	ID           string                `json:"id"`
	Onset        trace.Nanos           `json:"onset_unix_nano"`
	Opened       trace.Nanos           `json:"opened_unix_nano"`
	Closed       *trace.Nanos          `json:"closed_unix_nano"` // null if open at the end
	End          *jsonEnd              `json:"end"`              // null if open at the end
	Sentence     string                `json:"sentence"`
	Size         *jsonSize             `json:"size"` // null if no request type is known to be slower
	RequestTypes []string              `json:"request_types"`
	Problems     []string              `json:"problems"`
	Suspects     []jsonIncidentSuspect `json:"suspects"`
}

// jsonEnd is the reason why an incident closed, as in the API.
type jsonEnd struct {
	Reason   string  `json:"reason"`
	Text     string  `json:"text"`
	Incident *string `json:"incident,omitempty"` // the incident that continues
	Service  *string `json:"service,omitempty"`  // service that receives the requests now
}

// jsonSize is the size of an incident, as in the API.
type jsonSize struct {
	Ratio  describe.Number `json:"ratio"`
	Before describe.Number `json:"before_ns"`
	Now    describe.Number `json:"now_ns"`
	Share  describe.Number `json:"share_of_requests"`
}

type jsonIncidentSuspect struct {
	Service   string            `json:"service"`
	Operation string            `json:"operation"` // operation with most evidence; may be empty
	Score     describe.Number   `json:"score"`
	Parts     jsonIncidentParts `json:"parts"`
	Instances []jsonInstance    `json:"instances"`
}

// jsonIncidentParts holds the parts of a score. In includes the unexplained time on the wire to the service.
type jsonIncidentParts struct {
	Own        describe.Number `json:"own"`
	Added      describe.Number `json:"added"`
	In         describe.Number `json:"in"`
	Out        describe.Number `json:"out"`
	Errors     describe.Number `json:"errors"`
	Unanswered describe.Number `json:"unanswered"`
	Silent     describe.Number `json:"silent"`
	Shape      describe.Number `json:"shape"`
}

type jsonInstance struct {
	Instance string          `json:"instance"`
	Part     describe.Number `json:"part"`
}

func (n *names) jsonEnd(x *engine.Incident) *jsonEnd {
	last := x.Last()
	end := &jsonEnd{Reason: describe.EndReasons[last.Why], Text: describe.Ending(n.Names, &last).String()}
	if last.Into != 0 {
		end.Incident = new(fmt.Sprintf("%016x", last.Into))
	}
	if last.Service != 0 {
		end.Service = new(n.NamedService(last.Service))
	}
	return end
}

func (n *names) jsonIncident(x *engine.Incident) jsonIncident {
	told := n.incident(x)
	j := jsonIncident{
		ID:           fmt.Sprintf("%016x", x.ID),
		Onset:        x.Onset,
		Opened:       x.Opened(),
		Closed:       optionalTime(x.Closed()),
		Sentence:     told.Sentence.String(),
		RequestTypes: []string{},
		Problems:     []string{},
		Suspects:     make([]jsonIncidentSuspect, 0, len(x.Suspects)),
	}
	if !x.IsOpen() {
		j.End = n.jsonEnd(x)
	}
	if size := told.Size; size.Types > 0 {
		j.Size = &jsonSize{
			describe.Number(size.Ratio()), describe.Number(size.Before),
			describe.Number(size.Now), describe.Number(x.Share),
		}
	}
	for i := range x.Types {
		j.RequestTypes = append(j.RequestTypes, n.RequestType(x.Types[i].RequestType, 0))
	}
	for _, id := range x.Problems {
		j.Problems = append(j.Problems, id.String())
	}
	for i := range x.Suspects {
		s := describe.NewSuspect(n.Names, &x.Suspects[i])
		p := &s.Parts
		suspect := jsonIncidentSuspect{
			Service: s.Service, Score: s.Score, Instances: []jsonInstance{},
			Parts: jsonIncidentParts{
				Own:        p.Own,
				Added:      p.Added,
				In:         p.In + p.Rest,
				Out:        p.Out,
				Errors:     p.Errors,
				Unanswered: p.Unanswered,
				Silent:     p.Silent,
				Shape:      p.Shape,
			},
		}
		if len(s.Operations) > 0 {
			suspect.Operation = s.Operations[0].Operation
		}
		for _, x := range s.Machines() {
			suspect.Instances = append(suspect.Instances, jsonInstance{x.Value, x.Part})
		}
		j.Suspects = append(j.Suspects, suspect)
	}
	return j
}
