package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// testToken has the form of a routing key of PagerDuty.
const testToken = "R0123456789abcdefghijklmnopqrstu"

// contractOf returns the contract of a receiver in testdata/contracts: an OpenAPI 3.0 schema written from the
// documentation of its API.
func contractOf(t testing.TB, name string) *openapi3.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "contracts", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s openapi3.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(context.Background()); err != nil {
		t.Fatalf("contract %s: %v", name, err)
	}
	return &s
}

// satisfies checks a body against a contract.
func satisfies(t testing.TB, contract string, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v in %s", contract, err, body)
	}
	if err := contractOf(t, contract).VisitJSON(v, openapi3.EnableFormatValidation()); err != nil {
		t.Fatalf("%s: %v in %.2000s", contract, err, body)
	}
}

// message returns e as a message in the given format, and false if e isn't sent in that format.
func message(e *Event, format string) (*store.Message, bool) {
	f := formats[format]
	body := f.render(e)
	return &store.Message{
		ID:      e.ID,
		Event:   string(e.Type),
		Format:  format,
		Subject: e.subject,
		At:      trace.Nanos(e.At),
		Body:    body,
	}, body != nil
}

// called is a call as a receiver sees it.
type called struct {
	path, authorization string
	body                []byte
}

// calls sends one event of each kind to a receiver of a format, and returns the calls by the type of the event.
func calls(t *testing.T, format string, list ...*Event) map[Type]called {
	t.Helper()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	c, err := newCaller(&Endpoint{
		Name:         "a",
		URL:          r.URL,
		Format:       format,
		Token:        testToken,
		AllowPrivate: true,
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	all := make(map[Type]called)
	for _, e := range list {
		m, sent := message(e, format)
		if !sent {
			continue
		}
		if strings.Contains(string(m.Body), testToken) {
			t.Errorf("%s: the outbox holds the token", e.Type)
		}
		if answer, err := c.call(t.Context(), m); err != nil || answer.Err() != nil {
			t.Fatalf("%s: %+v %v", e.Type, answer, err)
		}
		q := r.next(t)
		all[e.Type] = called{q.URL.RequestURI(), q.Header.Get("Authorization"), []byte(q.Header.Get("Body"))}
	}
	return all
}

// The calls to PagerDuty satisfy the contract of Events API v2. All events of an incident have one dedup_key.
func TestPagerDuty(t *testing.T) {
	actions := make(map[Type]string)
	keys := make(map[Type]string)
	for typ, c := range calls(t, "pagerduty", events()...) {
		satisfies(t, "pagerduty", c.body)
		var event struct {
			Action  string `json:"event_action"`
			Key     string `json:"dedup_key"`
			Routing string `json:"routing_key"`
		}
		if err := json.Unmarshal(c.body, &event); err != nil || event.Routing != testToken || c.path != "/v2/enqueue" {
			t.Errorf("%s: %v %+v at %s", typ, err, event, c.path)
		}
		actions[typ], keys[typ] = event.Action, event.Key
	}
	want := map[Type]string{
		IncidentOpened:       "trigger",
		IncidentLocated:      "trigger",
		IncidentAcknowledged: "acknowledge",
		IncidentClosed:       "resolve",
		ProblemOpened:        "trigger",
		ProblemLocated:       "trigger",
		ProblemExplained:     "trigger",
		ProblemClosed:        "resolve",
		Test:                 "trigger",
	}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, typ := range []Type{IncidentLocated, IncidentAcknowledged, IncidentClosed} {
		if keys[typ] != keys[IncidentOpened] || keys[typ] == keys[ProblemOpened] {
			t.Errorf("%s has the key %s, %s has %s", typ, keys[typ], IncidentOpened, keys[IncidentOpened])
		}
	}
}

// The calls to Opsgenie satisfy the contracts of its Alert API. An alert is changed under the alias it was created
// with.
func TestOpsgenie(t *testing.T) {
	all := calls(t, "opsgenie", events()...)
	var created opsgenieAlert
	if err := json.Unmarshal(all[IncidentOpened].body, &created); err != nil || created.Alias == "" {
		t.Fatal(err, created)
	}
	for typ, path := range map[Type]string{
		IncidentOpened:       "",
		IncidentLocated:      "/notes",
		IncidentAcknowledged: "/acknowledge",
		IncidentSteady:       "/notes",
		IncidentClosed:       "/close",
		ProblemOpened:        "",
		ProblemClosed:        "/close",
		Test:                 "",
	} {
		c, contract, want := all[typ], "opsgenie-create", "/v2/alerts"
		if path != "" {
			contract = "opsgenie-change"
			want += "/" + alertKey(typ, eventsByType()[typ].subject) + path + "?identifierType=alias"
		}
		satisfies(t, contract, c.body)
		if c.path != want || c.authorization != "GenieKey "+testToken ||
			typ == IncidentClosed && !strings.Contains(c.path, created.Alias) {
			t.Errorf("%s: %s, want %s; %s", typ, c.path, want, c.authorization)
		}
	}
	if _, sent := all[Decided]; sent {
		t.Error("a decision changes an alert")
	}
}

func eventsByType() map[Type]*Event {
	all := make(map[Type]*Event)
	for _, e := range events() {
		all[e.Type] = e
	}
	return all
}

// Messages to Teams satisfy the contract of its workflows.
func TestTeams(t *testing.T) {
	all := calls(t, "teams", events()...)
	for typ := range eventsByType() {
		satisfies(t, "teams", all[typ].body)
	}
}

// An event that follows the end of an incident doesn't reopen its alert. Chronic problems never open an alert.
func TestNoAlertAfterTheEnd(t *testing.T) {
	f := sampleIncident(IncidentClosed, "shop", "x")
	for _, typ := range []Type{IncidentOpened, IncidentLocated, IncidentAcknowledged, IncidentSteady, Decided} {
		f.Type = typ
		if got := NewIncidentEvent(f).step(); got != stepNone {
			t.Errorf("%s of a closed incident: step %d", typ, got)
		}
	}
	chronic := sample(ProblemOpened, "shop", "x")
	chronic.Problem.Onset = detect.Chronic
	if got := NewEvent(chronic).step(); got != stepNone {
		t.Errorf("a chronic problem: step %d", got)
	}
}

// checkReceivers checks an event with arbitrary texts against the contracts of receivers.
func checkReceivers(t *testing.T, e *Event) {
	for format, limit := range map[string]int{"teams": 28 << 10, "pagerduty": 512_000, "opsgenie": 100_000} {
		m, sent := message(e, format)
		if !sent {
			continue
		}
		contract, body := format, m.Body
		switch path := ""; format {
		case "pagerduty":
			body = addRoutingKey(nil, testToken, body)
		case "opsgenie":
			contract = "opsgenie-create"
			if path, _ = opsgenieTarget(e.Type, e.subject, body); path != "" {
				contract = "opsgenie-change"
			}
		}
		satisfies(t, contract, body)
		if len(body) > limit || !utf8.Valid(body) {
			t.Fatalf("%s: %d bytes", format, len(body))
		}
	}
}

// A webhook needs a token if its format uses one.
func TestTokenIsRequired(t *testing.T) {
	for _, format := range []string{"pagerduty", "opsgenie"} {
		if _, err := newCaller(&Endpoint{Name: "a", URL: "https://a.example", Format: format}, time.Now); err == nil ||
			!NeedsToken(format) {
			t.Errorf("%s is accepted without a token", format)
		}
	}
}

// An incident that opened, was acknowledged and closed causes three calls to PagerDuty, in order and once each,
// although its events are produced in every epoch and again after a crash.
func TestAcknowledgementReachesPagerDuty(t *testing.T) {
	dir := t.TempDir()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	endpoints := []Endpoint{
		{
			Name:         "pager",
			URL:          r.URL,
			Format:       "pagerduty",
			Token:        testToken,
			Events:       []Type{IncidentOpened, IncidentClosed},
			AllowPrivate: true,
		},
		{
			Name:         "chat",
			URL:          r.URL + "/chat",
			Format:       "slack",
			Events:       []Type{IncidentOpened, IncidentClosed},
			AllowPrivate: true,
		},
	}
	opening, closing := sampleIncident(IncidentOpened, "shop", "x"), sampleIncident(IncidentClosed, "shop", "x")
	var note *Note
	epoch := func(at trace.Nanos, f *IncidentFacts) []*Event {
		return Events(&Epoch{
			At:             at,
			Names:          f.Names,
			Incidents:      []engine.Incident{*f.Incident},
			Directory:      f.Directory,
			Muted:          func(uint64) bool { return false },
			Acknowledged:   func(uint64) *Note { return note },
			Investigation:  func(search.Subject) *search.Investigation { return nil },
			IncidentTraces: func(*engine.Incident) []Trace { return nil },
			IncidentURL:    func(uint64) string { return "" },
		})
	}
	produce := func(n *Notifier) {
		note = nil
		list := epoch(opening.At, opening)
		note = NewNote("alice", time.Unix(0, int64(opening.At.Add(5*time.Second))), "")
		for i := range 3 {
			list = append(list, epoch(opening.At.Add(time.Duration(i+1)*10*time.Second), opening)...)
		}
		list = append(list, epoch(opening.At.Add(3*time.Hour), opening)...) // later than acknowledgedWithin
		list = append(list, epoch(closing.At, closing)...)
		for _, e := range list {
			enqueue(t, n, e)
		}
	}
	for range 2 { // the second time after a crash
		outbox, closeStore := openOutbox(t, dir)
		n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, endpoints)
		if err != nil {
			t.Fatal(err)
		}
		produce(n)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		for range 6000 {
			if outbox.Stats().Waiting == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		<-done
		closeStore()
	}
	var pager []string
	chat := 0
	for len(r.requests) > 0 {
		q := <-r.requests
		if q.URL.Path == "/chat" {
			chat++
			continue
		}
		var event struct {
			Action string `json:"event_action"`
		}
		if err := json.Unmarshal([]byte(q.Header.Get("Body")), &event); err != nil {
			t.Fatal(err)
		}
		pager = append(pager, event.Action)
	}
	if diff := cmp.Diff([]string{"trigger", "acknowledge", "resolve"}, pager); diff != "" || chat != 2 {
		t.Errorf("%d calls to the chat, want 2; calls to PagerDuty: -want +got\n%s", chat, diff)
	}
}

// The proposal to accept a steady incident reaches people with a link to the dialog, and pages nobody.
func TestProposal(t *testing.T) {
	f := sampleIncident(IncidentSteady, "shop", "POST /checkout")
	e := NewIncidentEvent(f)
	for name, sent := range map[string]bool{
		"sibyl": true, "cloudevents": true, "slack": true, "teams": true, "email": true,
		"grafana-annotation": true, "opsgenie": true, "pagerduty": false, "alertmanager": false,
	} {
		body := string(rendered(e, name))
		if (body != "") != sent {
			t.Errorf("%s: %q, sent must be %t", name, body, sent)
		}
		if sent && !strings.Contains(body, "/incidents/0000000000000abc?dialog=accept") {
			t.Errorf("%s has no link to the dialog: %s", name, body)
		}
		// e-mails have two parts, messages to Slack two texts
		if sent && name != "sibyl" && name != "cloudevents" && strings.Count(body, "normal now") > 2 {
			t.Errorf("%s proposes more than once: %s", name, body)
		}
	}
	f.Incident.Enter(incident.Transition{At: f.At, State: incident.Closed, Why: incident.Recovered})
	if got := NewIncidentEvent(f).step(); got != stepNone {
		t.Errorf("after the end: step %d", got)
	}
}

func rendered(e *Event, name string) []byte {
	f := formats[name]
	return f.render(e)
}
