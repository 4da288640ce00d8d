package notify

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// opened is when the sample problem opened.
const opened = trace.Nanos(1_790_000_000_000_000_000)

// sample returns the facts for an event about a problem whose requests enter at service and operation.
func sample(t Type, service, operation string) *Facts {
	table := &trace.Table{}
	op := func(service, name string, kind trace.Kind) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), kind)
	}
	entry := op(service, operation, trace.Server)
	pay := table.Step(op("payment", "POST", trace.Client), op("bank", "POST /charge", trace.Server))
	root := table.Child(0, entry)
	at := table.Child(root, pay)
	tracepoint := table.Symbol("payment/charge")
	v := &search.Investigation{
		Subject:     search.OfProblem(analysis.Hash{Hi: 7, Lo: 9}),
		RequestType: analysis.Hash{Lo: 3},
		Group:       analysis.Hash{Lo: 4},
		Entry:       entry,
		Status:      search.Investigating,
		Opened:      opened,
	}
	p := &detect.Problem{
		ID:          v.Subject.ID,
		Kind:        detect.KindVariable,
		Onset:       detect.Changed,
		Whole:       detect.WholeVariance,
		Level:       group.LevelGroup,
		Group:       v.Group,
		RequestType: v.RequestType,
		Entry:       entry,
		Requests:    500,
		Rate:        8.5,
		Mean:        120 * time.Millisecond,
		P50:         40 * time.Millisecond,
		P99:         1420 * time.Millisecond,
		CoV:         1.4,
		CoVLow:      1.2,
		CoVHigh:     1.6,
		Impact:      3.2e8,
		Edges: []group.EdgeShare{
			{
				Edge:          trace.EdgeOf(at, 0, 0),
				Context:       at,
				Mean:          9e7,
				ShareMean:     0.75,
				ShareVariance: 0.83,
				ShareLow:      0.79,
				ShareHigh:     0.87,
				TailLift:      6e8,
				Excess:        math.NaN(),
				ExcessLow:     math.NaN(),
				ExcessHigh:    math.NaN(),
				Score:         0.83,
			},
			{Mean: 1e6, ShareMean: 0.25, ShareVariance: 0.17, Score: 0.17},
		},
		Explanations: []detect.Explanation{{
			Variable: "bank.route",
			Value:    "fallback",
			Where:    at,
			Effect:   0.7,
			Low:      0.6,
			High:     0.8,
			PValue:   0.001,
			Remains:  0.2,
		}},
	}
	d := &search.Decision{
		At:       opened,
		Plan:     12,
		Subject:  v.Subject,
		Strategy: "adaptive",
		From:     search.Opened,
		To:       search.Investigating,
		Reason:   "searching the largest unexplained part",
		Tree:     search.TreeEvidence{Version: 5, Nodes: 40, Tracepoints: 30},
		Matches: []search.Matched{{
			Context:   at,
			Score:     0.83,
			Nodes:     []trace.Context{at},
			RunnersUp: []search.RunnerUp{{Context: root, Distance: 1}},
		}},
		Suspects: []search.Suspect{{
			Op:       pay,
			Context:  at,
			Share:    0.83,
			Low:      0.79,
			High:     0.87,
			Requests: 500,
			Open:     4,
		}},
		Picks: []search.Pick{{
			Tracepoint: tracepoint,
			Context:    at,
			Score:      0.4,
			Reason:     "largest share of the problem",
			Cost:       search.Usage{Tracepoints: 1, Bytes: 900, CPU: 0.01},
		}},
		Off:      []search.Off{{Tracepoint: tracepoint, Reason: search.WhyRefuted}},
		Rejected: []search.Rejected{{Tracepoint: tracepoint, Reason: search.WhyBudget}},
		Missing:  []trace.Op{pay},
		Estimate: search.Usage{Tracepoints: 1, Bytes: 900, CPU: 0.01},
		Budget:   search.Budget{Tracepoints: 100},
		Overhead: search.Overhead{Requests: 100, Nanos: 900, Low: -100, High: 1900},
	}
	f := &Facts{
		Type:          t,
		At:            opened.Add(30 * time.Second),
		Source:        "https://sibyl.example",
		Investigation: v,
		Problem:       p,
		Names:         describe.New(table, describe.Verbatim),
		URL:           "https://sibyl.example/problems/" + v.Subject.String(),
		Traces: []Trace{{
			ID:         "186ada6fd6ba3a0461a26db26d92c674",
			DurationNS: 1_630_000_000,
			Links: []directory.URL{{
				Name: "Jaeger",
				URL:  "https://jaeger.example/trace/186ada6fd6ba3a0461a26db26d92c674",
			}},
		}},
	}
	switch t {
	case Decided:
		f.Decision = d
	case ProblemClosed:
		v.Status = search.Located // it ends later
	case ProblemLocated, ProblemExplained:
		v.Status, f.Decision = search.Located, d
	case ProblemOpened, Test:
	}
	return f
}

// sampleIncident returns the facts for an event about an incident whose first suspect is service.
func sampleIncident(t Type, service, operation string) *IncidentFacts {
	p := sample(ProblemOpened, service, operation)
	table := p.Names.Table
	suspect := table.Symbol("payment")
	other := table.Symbol("bank")
	x := &engine.Incident{
		Incident: incident.Incident{
			ID:       0xabc,
			Onset:    opened,
			History:  []incident.Transition{{At: opened.Add(3 * time.Minute)}},
			Alerted:  suspect,
			Requests: 800,
			Suspects: []compare.Suspect{
				{
					Service:    suspect,
					Score:      0.86,
					Own:        0.25,
					In:         0.61,
					Operations: []compare.SuspectOperation{{Op: p.Problem.Entry, Score: 0.86}},
					Instances: []compare.InstancePart{{
						Key:   table.Symbol("k8s.pod.name"),
						Value: table.Symbol("payment-7"),
						Calls: 90,
						Part:  0.97,
						Of:    12,
					}},
				},
				{Service: table.Symbol(service), Score: 0.02, Own: 0.02},
				{Service: other, Score: 0.001, Own: 0.001},
			},
		},
		Types: []engine.AffectedType{{
			RequestType: p.Problem.RequestType,
			Requests:    400,
			Mean:        1.2e8,
			Usual:       4e7,
			Failed:      0.02,
			UsualFailed: 0.001,
		}},
	}
	p.Names.SetName(p.Problem.RequestType, service+" "+operation)
	f := &IncidentFacts{
		Type:      t,
		At:        x.Opened(),
		Source:    p.Source,
		Incident:  x,
		Traces:    p.Traces,
		Names:     p.Names,
		URL:       "https://sibyl.example/incidents/0000000000000abc",
		Directory: sampleDirectory(),
		Annotations: []engine.Annotation{
			{
				At:      opened.Add(-time.Hour),
				Service: suspect,
				Version: table.Symbol("1.8.1"),
				Before:  table.Symbol("1.8.0"),
			},
			{
				At:      opened.Add(-time.Minute),
				Service: suspect,
				Version: table.Symbol("1.8.2"),
				Before:  table.Symbol("1.8.1"),
			},
		},
	}
	if t == IncidentAcknowledged {
		f.At = f.At.Add(time.Minute)
		f.Acknowledged = NewNote("alice", time.Unix(0, int64(f.At)), "rolling back")
	}
	if t == IncidentSteady {
		f.At = x.Opened().Add(incident.Day)
		x.Enter(incident.Transition{At: f.At, State: incident.Steady, Why: incident.Unchanged})
	}
	if t == IncidentLocated {
		f.Decision = sample(ProblemLocated, service, operation).Decision
		f.Decision.Subject = search.OfIncident(x.ID)
		at := table.Child(0, p.Problem.Entry)
		located := search.Suspect{
			Tracepoint: table.Symbol("payment/charge"),
			Op:         p.Problem.Entry,
			Context:    at,
			Share:      0.76,
			Low:        0.7,
			High:       0.81,
			Requests:   300,
		}
		f.Investigation = &search.Investigation{
			Subject:  search.OfIncident(x.ID),
			Status:   search.Located,
			Reason:   "no candidate below it is left",
			Opened:   x.Opened(),
			Suspects: []search.Suspect{located},
			Place:    located,
		}
	}
	if t == IncidentClosed { // another suspect has more evidence now
		f.At = x.Opened().Add(40 * time.Minute)
		x.Seen = f.At
		x.Enter(incident.Transition{At: f.At, State: incident.Closed, Why: incident.Recovered, Calls: 53})
		x.Suspects[0], x.Suspects[1] = x.Suspects[1], x.Suspects[0]
	}
	return f
}

// sampleDirectory returns owners of the sample's services, and links to pages about them.
func sampleDirectory() directory.Directory {
	logs, err := directory.NewServiceLink("Logs",
		"https://logs.example/?service={service}&instance={instance}&from={start_ms}&to={end_ms}")
	if err != nil {
		panic(err)
	}
	runbook, err := directory.NewServiceLink("Runbook", "https://wiki.example/payment#{operation}", "payment")
	if err != nil {
		panic(err)
	}
	return directory.Directory{
		Owners: []directory.Owner{
			{Name: "Payments", Contact: "#payments", Services: []string{"pay*"}, Route: []string{"payments"}},
			{Name: "Shop", Services: []string{"shop"}},
		},
		Services: []directory.Link{logs, runbook},
	}
}

// events returns one event of each kind.
func events() []*Event {
	var list []*Event
	for _, t := range []Type{ProblemOpened, ProblemLocated, ProblemExplained, ProblemClosed, Decided} {
		list = append(list, NewEvent(sample(t, "shop", "POST /checkout")))
	}
	for _, t := range []Type{IncidentOpened, IncidentLocated, IncidentAcknowledged, IncidentSteady, IncidentClosed} {
		list = append(list, NewIncidentEvent(sampleIncident(t, "shop", "POST /checkout")))
	}
	table := &trace.Table{}
	budget := &Facts{
		Type:  Decided,
		At:    opened,
		Names: describe.New(table, describe.Verbatim),
		Decision: &search.Decision{
			Plan:   13,
			Reason: search.WhyBudget,
			Off:    []search.Off{{Tracepoint: table.Symbol("shop/cart"), Reason: search.WhyBudget}},
		},
	}
	return append(list, NewEvent(budget), NewTest(opened, "https://sibyl.example"))
}

// TestFormats compares bodies with golden files, one for each format.
func TestFormats(t *testing.T) {
	for name := range formats {
		var b strings.Builder
		for _, e := range events() {
			f := formats[name]
			fmt.Fprintf(&b, "# %s, %s\n", e.Type, f.contentType)
			body := f.render(e)
			if body == nil {
				b.WriteString("not sent\n")
				continue
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			b.Write(append(indented.Bytes(), '\n'))
		}
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestEventIDs(t *testing.T) {
	seen := make(map[string]Type)
	for _, e := range events() {
		if other, twice := seen[e.ID]; twice {
			t.Errorf("%s and %s have the same ID", e.Type, other)
		}
		seen[e.ID] = e.Type
	}
	a, b := NewEvent(sample(ProblemOpened, "shop", "x")), NewEvent(sample(ProblemOpened, "shop", "y"))
	if a.ID != b.ID {
		t.Error("the ID depends on more than type, time, problem and plan")
	}
}

func TestChanges(t *testing.T) {
	problems := func(ids ...uint64) (all []detect.Problem) {
		for _, id := range ids {
			all = append(all, detect.Problem{ID: analysis.Hash{Lo: id}})
		}
		return all
	}
	decision := func(problem uint64, from, to search.Status) search.Decision {
		return search.Decision{Subject: search.OfProblem(analysis.Hash{Lo: problem}), From: from, To: to}
	}
	incident := search.Decision{Subject: search.OfIncident(9), From: search.Investigating, To: search.Located}
	var got []string
	for _, c := range Changes(problems(1, 2, 3, 4), problems(5, 2, 1, 6), []search.Decision{
		decision(1, search.Investigating, search.Located), decision(2, search.Located, search.Explained),
		decision(2, search.Explained, search.Gone),
		decision(7, search.Located, search.Located), decision(8, search.Investigating, search.Exhausted),
		{},
		incident,
	}) {
		got = append(got, fmt.Sprint(c.Subject.ID.Lo, " ", c.Type))
	}
	want := []string{
		"5 problem.opened", "6 problem.opened", "1 decision", "1 problem.located", "2 decision", "2 problem.explained",
		"2 decision",
		"7 decision", "8 decision", "0 decision", "9 decision", "9 incident.located", "3 problem.closed",
		"4 problem.closed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The labels of an alert, which identify it, stay the same for the life of an incident or problem.
func TestAlertLabels(t *testing.T) {
	labels := func(typ Type) map[string]string {
		list, ok := alerts(NewEvent(sample(typ, "shop", "POST /checkout"))).([]alert)
		if !ok || len(list) != 1 {
			t.Fatalf("%s: no alert", typ)
		}
		return list[0].Labels
	}
	for _, typ := range []Type{ProblemLocated, ProblemExplained, ProblemClosed} {
		if diff := cmp.Diff(labels(ProblemOpened), labels(typ)); diff != "" {
			t.Errorf("%s: %s", typ, diff)
		}
	}
	incidentLabels := func(typ Type) map[string]string {
		list, ok := alerts(NewIncidentEvent(sampleIncident(typ, "shop", "POST /checkout"))).([]alert)
		if !ok || len(list) != 1 {
			t.Fatalf("%s: no alert", typ)
		}
		return list[0].Labels
	}
	for _, typ := range []Type{IncidentLocated, IncidentClosed} {
		if diff := cmp.Diff(incidentLabels(IncidentOpened), incidentLabels(typ)); diff != "" {
			t.Errorf("%s: %s", typ, diff)
		}
	}
	chronic := sample(ProblemOpened, "shop", "GET")
	chronic.Problem.Onset = detect.Chronic
	if a := alerts(NewEvent(chronic)); a != nil {
		t.Errorf("a chronic problem raises an alert: %v", a)
	}
}

var allowedLink = regexp.MustCompile(
	`^(https://(jaeger|sibyl|logs|wiki)\.example/|!date\^[0-9]+\^[{][a-z_{} ]+[}]\|[-0-9: ]+ UTC>)`)

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// FuzzFormats checks that bodies with arbitrary texts meet the requirements of receivers.
func FuzzFormats(f *testing.F) {
	f.Add("shop", "POST /checkout", "says <!channel> & more")
	f.Add("", "\x00\xff\u202e", strings.Repeat("<", 5000))
	// a link that exceeds the limit of Slack when escaped
	f.Add(strings.Repeat("é", 250), "\xff", strings.Repeat("<", 400))
	f.Add("a|b>", "</a><script>", "\"}]")
	f.Fuzz(func(t *testing.T, service, operation, text string) {
		facts := sample(Decided, service, operation)
		link, err := directory.NewLink(text, "https://jaeger.example/{trace_id}?o={operation}&s={service}")
		if err != nil {
			t.Fatal(err)
		}
		facts.Traces[0].Links = []directory.URL{link.URL(&directory.Request{Service: service, Operation: operation})}
		facts.Problem.Explanations[0].Value = text
		about := sampleIncident(IncidentOpened, service, operation)
		about.Traces = facts.Traces
		about.Acknowledged = NewNote(service, time.Unix(0, 0), text)
		about.Annotations[1].Version = about.Names.Table.Symbol(text)
		facts.Type = ProblemOpened
		open := NewEvent(facts)
		facts.Type = Decided
		acknowledged := *about
		acknowledged.Type = IncidentAcknowledged
		for _, e := range []*Event{open, NewEvent(facts), NewIncidentEvent(about), NewIncidentEvent(&acknowledged)} {
			for name, format := range formats {
				body := format.render(e)
				if body != nil && (!json.Valid(body) || !utf8.Valid(body) || len(body) > 1<<20) {
					t.Fatalf("%s: invalid JSON, or more than 1 MiB: %d bytes: %.200s", name, len(body), body)
				}
			}
			checkSlack(t, e)
			checkAlerts(t, e)
			checkReceivers(t, e)
		}
	})
}

func checkSlack(t *testing.T, e *Event) {
	var m struct {
		Text   string
		Blocks []struct {
			Type             string
			Text             *slackText
			Fields, Elements []slackText
		}
	}
	f := formats["slack"]
	if err := json.Unmarshal(f.render(e), &m); err != nil {
		t.Fatal(err)
	}
	if m.Text == "" || len(m.Blocks) == 0 || len(m.Blocks) > 50 {
		t.Fatalf("text %q, %d blocks", m.Text, len(m.Blocks))
	}
	for _, b := range m.Blocks {
		if len(b.Fields) > 10 || len(b.Elements) > 10 {
			t.Fatalf("%d fields, %d elements", len(b.Fields), len(b.Elements))
		}
		texts := append(b.Fields, b.Elements...)
		if b.Text != nil {
			texts = append(texts, *b.Text)
		}
		for i, x := range texts {
			limit := 2000
			if b.Text != nil && i == len(texts)-1 {
				limit = 3000
			}
			if n := utf8.RuneCountInString(x.Text); n == 0 || n > limit {
				t.Fatalf("%s: %d characters", b.Type, n)
			}
			for rest := x.Text; strings.Contains(rest, "<"); { // only links of templates and to Sibyl are allowed
				_, rest, _ = strings.Cut(rest, "<")
				if !allowedLink.MatchString(rest) {
					t.Fatalf("unexpected link: %q", x.Text)
				}
			}
		}
	}
}

func checkAlerts(t *testing.T, e *Event) {
	list, ok := alerts(e).([]alert)
	if !ok {
		return
	}
	for _, a := range list {
		for _, pairs := range []map[string]string{a.Labels, a.Annotations} {
			for name, value := range pairs {
				if !labelName.MatchString(name) || value == "" || !utf8.ValidString(value) {
					t.Fatalf("%q: %q", name, value)
				}
			}
		}
		if a.StartsAt > a.EndsAt {
			t.Fatal("the alert ends before it starts")
		}
	}
}

// The sentence of a decision mentions only changes that it made.
func TestSentenceOfDecision(t *testing.T) {
	on, off := []Pick{{Tracepoint: "a"}}, []Excluded{{Tracepoint: "b"}}
	for want, d := range map[string]*Decision{
		"1 switched on: a": {On: on}, "1 switched off: b": {Off: off},
		"1 switched on: a; 1 switched off: b; the budget shrank": {On: on, Off: off, Reason: "the budget shrank"},
	} {
		if got := d.sentence(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Slack shows times in the reader's zone. Other formats state the zone once in a sentence.
func TestZones(t *testing.T) {
	f := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	wanted := map[string]string{
		"open": "since <!date^1789999980^{time}|14:13 UTC>; ",
		"closed": "between <!date^1789999980^{date_short_pretty} {time}|2026-09-21 14:13 UTC> and " +
			"<!date^1790086560^{date_short_pretty} {time}|2026-09-22 14:16 UTC>; ",
	}
	for _, what := range []string{"open", "closed"} { // in this order
		want := wanted[what]
		if what == "closed" {
			f.Type, f.At = IncidentClosed, f.Incident.Opened().Add(incident.Day)
			f.Incident.Seen = f.At
			f.Incident.Enter(incident.Transition{At: f.At, State: incident.Closed, Why: incident.Recovered})
		}
		e := NewIncidentEvent(f)
		body := string(rendered(e, "slack"))
		if strings.Count(body, want) != 2 ||
			!strings.Contains(body, "<!date^1790000000^{date_short_pretty} {time_secs}|2026-09-21 14:13:20 UTC>") {
			t.Errorf("%s: want %q twice in %s", what, want, body)
		}
		if strings.Count(e.sentence(), "UTC") != 1 {
			t.Errorf("%s: %s", what, e.sentence())
		}
	}
}

// Messages about open incidents have buttons if clicks come back. A button replaces the link to the same dialog, and
// nobody is asked to acknowledge an incident that somebody already has.
func TestSlackButtons(t *testing.T) {
	buttons := func(f *IncidentFacts) (ids []string, text string) {
		c, err := newCaller(&Endpoint{URL: "https://hooks.example", Format: "slack", Buttons: true}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		e := NewIncidentEvent(f)
		text = string(c.format.render(e))
		var m struct {
			Blocks []struct {
				Type     string
				Elements []struct {
					ID    string `json:"action_id"`
					Value string
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		for _, b := range m.Blocks {
			for _, x := range b.Elements {
				if b.Type == "actions" && x.Value == alertKey(e.Type, e.subject) {
					ids = append(ids, x.ID)
				}
			}
		}
		return ids, text
	}
	f := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	ids, text := buttons(f)
	if !slices.Equal(ids, []string{"acknowledge", "silence"}) || strings.Contains(text, "dialog=acknowledge") ||
		!strings.Contains(text, "dialog=accept") {
		t.Errorf("opened: %q in %s", ids, text)
	}
	f.Type, f.Acknowledged = IncidentAcknowledged, NewNote("alice", time.Unix(0, int64(f.At)), "")
	if ids, text := buttons(f); !slices.Equal(ids, []string{"silence"}) {
		t.Errorf("acknowledged: %q in %s", ids, text)
	}
	f.Type, f.At = IncidentClosed, f.Incident.Opened().Add(incident.Day)
	f.Incident.Enter(incident.Transition{At: f.At, State: incident.Closed, Why: incident.Recovered})
	if ids, text := buttons(f); len(ids) > 0 {
		t.Errorf("closed: %q in %s", ids, text)
	}
}

// A click on a button must have a visible effect, so destinations with buttons receive acknowledgements, too.
func TestSubscribesWithButtons(t *testing.T) {
	for _, buttons := range []bool{false, true} {
		e := Endpoint{Format: "slack", Events: []Type{IncidentOpened}, Buttons: buttons}
		if e.subscribes(IncidentAcknowledged) != buttons {
			t.Errorf("with buttons %v, it subscribes to acknowledgements: %v", buttons, !buttons)
		}
	}
}
