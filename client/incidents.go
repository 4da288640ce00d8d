package client

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/report/postmortem"
)

// Incidents returns up to `most` incidents that match q: open ones first, then the others, latest first. If `most` is
// 0, it returns all of them.
func (c *Client) Incidents(
	ctx context.Context, q contract.ListIncidentsParams, most int,
) (*contract.IncidentList, error) {
	return getPages(ctx, c, q, most, func(l *contract.IncidentList) (*[]contract.Incident, *string) {
		return &l.Items, l.NextCursor
	}, "incidents")
}

// incidentID matches the ID of an incident.
var incidentID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Incident returns the incident with the given name: its position in the list, its ID, or a prefix of the ID.
func (c *Client) Incident(ctx context.Context, name string) (*contract.IncidentDetail, error) {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return nil, err
	}
	return Get[contract.IncidentDetail](ctx, c, nil, "incidents", id)
}

// IncidentReport returns the report about the incident with the given name, in the given format; see [Client.Incident].
func (c *Client) IncidentReport(
	ctx context.Context, name string, format contract.GetIncidentReportParamsFormat,
) ([]byte, error) {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return nil, err
	}
	query := url.Values{"format": {string(format)}}
	a, err := c.do(ctx, http.MethodGet, query, nil, []string{"incidents", id, "report"})
	return a.body, err
}

// CommentOnIncident adds a comment to the incident with the given name; see [Client.Incident].
func (c *Client) CommentOnIncident(ctx context.Context, name string, comment contract.CommentRequest) error {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodPost, comment, "incidents", id, "comments")
}

// AcknowledgeIncident acknowledges the incident with the given name; see [Client.Incident]. The text may be empty.
func (c *Client) AcknowledgeIncident(ctx context.Context, name, text string) error {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodPut, contract.NoteRequest{Text: &text}, "incidents", id, "acknowledge")
}

// MuteIncident mutes the incident with the given name; see [Client.Incident]. The text may be empty.
func (c *Client) MuteIncident(ctx context.Context, name, text string) error {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodPut, contract.NoteRequest{Text: &text}, "incidents", id, "mute")
}

// AcceptIncident accepts the behaviour since the onset of the open incident with the given name as normal; see
// [Client.Incident]. The text may be empty.
func (c *Client) AcceptIncident(ctx context.Context, name, text string) error {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodPost, contract.AcceptRequest{Text: &text}, "incidents", id, "accept")
}

// Widths of columns of the table of incidents.
const (
	incidentWidth = 10
	severityWidth = 10
	beganWidth    = 21
	lastedWidth   = 13
)

// ShowIncidents writes the incidents in list, in this order, each as a line of a table and a sentence.
func ShowIncidents(w io.Writer, list *contract.IncidentList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	unwell := len(list.Attention) > 0 && list.Open == 0 && !list.Learning // an open incident slows callers, too
	switch {
	case list.Learning && len(list.Items) == 0:
		p.learning("incidents", list.LearningLeftNs)
	case list.Learning:
		p.printf("Sibyl is learning normal behaviour: until it is done, only objectives raise incidents.\n")
	case len(list.Items) == 0 && !unwell && list.Open == 0:
		p.printf("No open incident.\n")
	case len(list.Items) == 0 && !unwell:
		p.printf("No incident matches.\n")
	}
	if unwell {
		p.printf("%s", p.style.Paint(terminal.Red, strings.TrimRight(p.style.Wrap(attention(list), 0), "\n"))+"\n")
	}
	if len(list.Items) > 0 {
		p.printf("%s\n", p.dim(terminal.PadRight("ID", incidentWidth)+terminal.PadRight("SEVERITY", severityWidth)+
			terminal.PadRight("BEGAN", beganWidth)+terminal.PadRight("LASTED", lastedWidth)+"SUSPECTS"))
	}
	for i := range list.Items {
		p.incident(&list.Items[i])
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	if list.Silenced > 0 {
		p.printf("%s\n", p.dim(units.Plural(list.Silenced, "open incident")+" silenced: sibyl silence list shows why"))
	}
	if list.Muted > 0 {
		p.printf("%s\n", p.dim(units.Plural(list.Muted, "muted incident")+" not shown: --muted shows all"))
	}
	if len(list.Items) > 0 {
		p.printf("\n%s", p.hint("Each suspect is followed by its share of the cost: added time and failed requests. "+
			"sibyl incidents ID (or 1 for the first) shows one with its evidence.", 0))
	}
	return p.flush(w)
}

// namedServices is the maximum number of services in a sentence.
const namedServices = 5

// attention returns a sentence about the services that need attention. list.Attention must not be empty.
func attention(list *contract.IncidentList) string {
	var named []string
	for i := range list.Attention[:min(len(list.Attention), namedServices)] {
		x := &list.Attention[i]
		named = append(named, clean(x.Service)+" ("+string(x.State)+")")
	}
	if len(list.Attention) > namedServices {
		named = append(named, "…")
	}
	n, verb := len(list.Attention), "need"
	if n == 1 {
		verb = "needs"
	}
	return "No open incident; " + units.Plural(n, "service") + " " + verb +
		" attention: " + strings.Join(named, ", ") + ". sibyl services shows why."
}

// added formats a score, in units of a request's usual duration. It adds a sign and a unit, because a plain number
// after the name of a service would look like a version.
func added(score float64) string { return "+" + units.Percent(score) }

// incident writes the line of an incident, its sentence, and its notes.
func (p *page) incident(x *contract.Incident) {
	var suspects []string
	cost := 0.0
	for i := range x.Suspects {
		cost += x.Suspects[i].Score
	}
	for i := range x.Suspects {
		share := x.Suspects[i].Score / max(cost, leastScore)
		suspects = append(suspects, clean(x.Suspects[i].Service)+" "+units.Percent(share))
	}
	lasted := terminal.PadRight("open", lastedWidth)
	if x.Ended == nil {
		lasted = p.style.Paint(terminal.Red, lasted)
	} else {
		lasted = terminal.PadRight(lastedText(x.Onset, *x.Ended), lastedWidth)
	}
	rest := p.style.Line() - incidentWidth - severityWidth - beganWidth - lastedWidth
	p.printf("%s%s%s%s%s\n",
		terminal.PadRight(x.ID[:8], incidentWidth), terminal.PadRight(string(x.Severity), severityWidth),
		terminal.PadRight(x.Onset.Local().Format(time.DateTime), beganWidth), lasted,
		p.bold(terminal.Shorten(strings.Join(suspects, ", "), rest)))
	p.printf("%s", p.style.Wrap(clean(localTimes(x, p.now)), 2))
	if text := sizeText(x); text != "" {
		p.printf("  %s\n", p.dim(text))
	}
	if x.End != nil {
		p.printf("  %s\n", p.dim("Closed: "+clean(x.End.Text)))
	}
	for _, n := range notes(&x.Notes) {
		p.printf("  %s\n", p.dim(n))
	}
	if s := x.Silenced; s != nil {
		p.printf("  %s\n", p.dim("silenced until "+s.Until.Local().Format(time.DateTime)+" by "+clean(s.By)))
	}
}

// sizeText returns the size of an incident, or "" if it has none:
// "failed 0 % → 12 %; mean 10 ms → 32 ms; 28 % of all requests affected".
func sizeText(x *contract.Incident) string {
	var parts []string
	share := 0.
	if f := x.Failures; f != nil {
		parts = append(parts, "failed "+units.Percent(f.Before)+" → "+units.Percent(f.Now))
		share = f.ShareOfRequests
	}
	if s := x.Size; s != nil {
		parts = append(parts, "mean "+units.Nanos(s.BeforeNs)+" → "+units.Nanos(s.NowNs))
		share = s.ShareOfRequests
	}
	if share > 0 {
		parts = append(parts, units.Percent(share)+" of all requests affected")
	}
	return strings.Join(parts, "; ")
}

// lastedText returns the time between the onset and the end of an incident as text.
func lastedText(onset, ended time.Time) string {
	return units.Span(ended.Sub(onset))
}

// period matches the period in an incident's sentence. Its times are in UTC, without seconds.
var period = regexp.MustCompile(`\b(since|between) (?:[0-9]{4}-[0-9]{2}-[0-9]{2} )?([0-9]{2}:[0-9]{2})` +
	`(?: and (?:[0-9]{4}-[0-9]{2}-[0-9]{2} )?([0-9]{2}:[0-9]{2}))?`)

// minutes is the layout of times without seconds.
const minutes = "15:04"

// localTimes returns the sentence of x with the period of x in the local time zone, like all other times. The period
// includes dates unless it lies within one day. Other text that looks like a period, such as the name of a service,
// remains unchanged.
func localTimes(x *contract.Incident, now time.Time) string {
	found := period.FindStringSubmatch(x.Sentence)
	if found == nil || found[2] != x.Onset.UTC().Format(minutes) || (found[3] != "") != (x.Ended != nil) {
		return x.Sentence
	}
	from, to, layout := x.Onset.Local(), now.Local(), minutes
	if x.Ended != nil {
		to = x.Ended.Local()
	}
	if from.Format(time.DateOnly) != to.Format(time.DateOnly) {
		layout = time.DateOnly + " " + minutes
	}
	text := found[1] + " " + from.Format(layout)
	if x.Ended != nil {
		text += " and " + to.Format(layout)
	}
	return strings.Replace(x.Sentence, found[0], text, 1)
}

// notes returns one text for each note in n.
func notes(n *contract.Notes) (all []string) {
	for _, x := range []struct {
		kind string
		note *contract.Note
	}{{"acknowledged", n.Acknowledged}, {"muted", n.Muted}} {
		if x.note == nil {
			continue
		}
		text := x.kind + " by " + clean(x.note.By)
		if x.note.Text != "" {
			text += ": " + clean(x.note.Text)
		}
		all = append(all, text)
	}
	return all
}

// Limits on the evidence shown for an incident. JSON output contains all of it.
const (
	shownIncidentSuspects = 5
	shownParts            = 3 // instances and operations of a suspect
	shownTypes            = 12
	shownProblems         = 12
	leastScore            = 0.005 // minimum for showing operations after the first
)

// ShowIncident writes an incident with its evidence.
func ShowIncident(w io.Writer, d *contract.IncidentDetail, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	x := &d.Incident
	p.incident(x)
	p.printf("\n%s\n%s", p.bold("Next step"), style.Wrap(clean(d.Next), 2))
	p.printf("\n%s %s\n", p.bold("Suspects"),
		p.dim("what each adds to a request, on average: +100 % doubles its usual time, or makes every request fail"))
	for i := range x.Suspects[:min(len(x.Suspects), shownIncidentSuspects)] {
		p.suspect(&x.Suspects[i], x.Queue != nil && i == 0)
	}
	p.printf("\n%s\n%s", p.bold("Severity"),
		style.Wrap(strings.TrimSuffix(string(x.Severity)+". "+clean(x.SeverityReason), ". "), 2))
	p.printf("\n%s\n  %s\n", p.bold("Lost"), clean(postmortem.Lost(x)))
	if d.Investigation != nil {
		p.investigation(d.Investigation, d.Located)
	}
	if len(x.Objectives) > 0 {
		p.printf("\n%s\n", p.bold("Objectives"))
		for i := range x.Objectives {
			o := &x.Objectives[i]
			p.printf("%s", style.Wrap(clean(o.Sentence)+" "+p.dim("burn rate "+units.Ratio(o.BurnRate)), 2))
		}
	}
	p.requestTypes(x.RequestTypes)
	p.annotations(x.Annotations)
	p.links(x)
	p.printf("\n%s\n", p.bold("Timeline"))
	for i := range d.Timeline {
		p.event(d.Timeline[i].At, d.Timeline[i].Text)
	}
	p.problems(x)
	p.earlier(d)
	p.samples(d)
	return p.flush(w)
}

// samples writes the sample traces of an incident with their request types.
func (p *page) samples(d *contract.IncidentDetail) {
	if len(d.Exemplars) == 0 {
		return
	}
	p.printf("\n%s %s\n", p.bold("Sample traces"),
		p.dim("sibyl traces ID shows one, and how it differs from normal ones"))
	types := make(map[string]string)
	for i := range d.Incident.RequestTypes {
		types[d.Incident.RequestTypes[i].ID] = d.Incident.RequestTypes[i].Name
	}
	for i := range d.Exemplars {
		e := &d.Exemplars[i]
		took := units.Nanos(float64(e.DurationNs))
		if e.Stratum == contract.ExemplarStratumFailed {
			took += " failed"
		}
		p.printf("  %s  %s  %s  %s\n", clock(e.Start), e.Trace, terminal.PadLeft(took, 8), clean(types[e.Group]))
	}
}

// problems writes the IDs of the first shownProblems problems of an incident, if it has any.
func (p *page) problems(x *contract.Incident) {
	if len(x.Problems) == 0 {
		return
	}
	p.printf("\n%s %s\n", p.bold("Problems"), p.dim("sibyl problems ID shows the places, attributes and gains of one"))
	ids := make([]string, 0, len(x.Problems))
	for _, id := range x.Problems[:min(len(x.Problems), shownProblems)] {
		ids = append(ids, id[:8])
	}
	p.printf("%s", p.style.Wrap(strings.Join(ids, ", "), 2))
	if more := len(x.Problems) - len(ids); more > 0 {
		p.printf("  %s\n", p.dim("… and "+units.Plural(more, "more problem")))
	}
}

// earlier writes the earlier incidents with the same first suspect, if there are any.
func (p *page) earlier(d *contract.IncidentDetail) {
	if len(d.Earlier) == 0 {
		return
	}
	p.printf("\n%s %s\n", p.bold("Earlier incidents of "+clean(d.Incident.Service)),
		p.dim(units.Plural(int(d.Incident.Earlier), "incident")))
	for i := range d.Earlier {
		x := &d.Earlier[i]
		course := string(x.Severity) + ", " + lastedText(x.Onset, x.Ended) + ": " + clean(x.End.Text)
		p.printf("  %s  %s %s\n", x.ID[:8], x.Onset.Local().Format(time.DateTime), p.dim(course))
		if x.Place != nil {
			place := clean(*x.Place)
			if x.Alike {
				place += ", as now"
			}
			p.printf("            %s\n", place)
		}
		if x.Helped != nil {
			p.printf("            helped:\n%s", p.style.Wrap(clean(*x.Helped), 14))
		}
	}
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// suspect writes the score of a suspect with its parts, and the instances and operations that account for most of it.
// awaited means that messages wait for the suspect, but no request does.
func (p *page) suspect(s *contract.IncidentSuspect, awaited bool) {
	var parts []string
	for _, part := range postmortem.Parts(&s.Parts) {
		parts = append(parts, part.Name+" "+added(part.Score))
	}
	name := clean(s.Service)
	if !s.EmitsSpans {
		name += " (emits no spans)"
	}
	if awaited { // its score is about requests, and none waits
		p.printf("           %s  %s\n", p.bold(name), p.dim("takes messages late"))
		return
	}
	p.printf("  %s %s  %s\n", terminal.PadLeft(added(s.Score), 8), p.bold(name), p.dim(strings.Join(parts, ", ")))
	if s.Owner != nil {
		p.printf("           %s\n", "owned by "+owner(s.Owner))
	}
	for i := range s.Instances[:min(len(s.Instances), shownParts)] {
		x := &s.Instances[i]
		p.printf("           %s of it: %s = %s\n", units.Percent(x.Part), clean(x.Key), clean(x.Value))
	}
	for i := range s.Operations[:min(len(s.Operations), shownParts)] {
		x := &s.Operations[i]
		if i > 0 && x.Score < leastScore {
			break
		}
		text := clean(x.Service + " " + x.Operation)
		if x.Target != nil {
			text += " → " + clean(x.Target.Service+" "+x.Target.Operation)
		}
		p.printf("           %s %s\n", text, p.dim(added(x.Score)))
	}
}

// owner returns the name of an owner and, if known, the contact.
func owner(o *contract.Owner) string {
	if o.Contact == nil {
		return clean(o.Name)
	}
	return clean(o.Name) + " (" + clean(*o.Contact) + ")"
}

// links writes the links to pages about the first suspect, if there are any.
func (p *page) links(x *contract.Incident) {
	if len(x.Suspects) == 0 || x.Suspects[0].Links == nil {
		return
	}
	p.printf("\n%s\n", p.bold("Links"))
	for _, l := range *x.Suspects[0].Links {
		p.printf("  %s  %s\n", clean(l.Name), clean(l.URL))
	}
}

// Widths of columns of request types.
const (
	typeWidth     = 10
	requestsWidth = 22
)

// requestTypes writes the affected request types with their times and failures, each followed by a line with its usual
// values.
func (p *page) requestTypes(types []contract.IncidentRequestType) {
	if len(types) == 0 {
		return
	}
	nameWidth := max(20, p.style.Line()-4-4*typeWidth-requestsWidth)
	row := func(name string, cells ...string) string {
		var line strings.Builder
		line.WriteString(terminal.PadRight(name, nameWidth))
		for i, text := range cells {
			width := typeWidth
			if i == len(cells)-1 {
				width = requestsWidth
			}
			line.WriteString(terminal.PadLeft(text, width))
		}
		return strings.TrimRight(line.String(), " ")
	}
	p.printf("\n%s %s\n", p.bold("Request types"), p.dim("since the onset, with usual values from before it"))
	p.printf("  %s\n", p.dim(row("", "MEAN", "P50", "P99", "FAILED", "REQUESTS")))
	for i := range types[:min(len(types), shownTypes)] {
		x := &types[i]
		name := terminal.Shorten(clean(cmp.Or(x.Name, x.ID)), nameWidth-1)
		requests := units.Count(int(x.Requests))
		if x.SpanNs > 0 {
			requests += " in " + units.Span(time.Duration(x.SpanNs))
		}
		p.printf("  %s\n", row(name, units.Nanos(x.MeanNs), units.Nanos(of(x.P50Ns)), units.Nanos(of(x.P99Ns)),
			units.Percent(x.Failed), requests))
		p.printf("  %s\n", p.dim(row("  usually", units.Nanos(x.UsualNs), units.Nanos(of(x.UsualP50Ns)),
			units.Nanos(of(x.UsualP99Ns)), units.Percent(x.UsualFailed), "")))
	}
	if more := len(types) - shownTypes; more > 0 {
		p.printf("  %s\n", p.dim("… and "+units.Plural(more, "more request type")))
	}
}
