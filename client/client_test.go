package client

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

func TestMain(m *testing.M) {
	time.Local = time.UTC // times are shown in local time
	m.Run()
}

// answers is the directory of the golden files of the API.
const answers = "../api/testdata"

// problem is the ID of the problem in the golden files of the API.
const problem = "f072d879d6001a5006b95cfc9e08bf19"

// incident is the ID of the incident in the golden files of the API.
const incident = "101885cb3de75177"

// serve serves the golden files of the API, and records the requests.
func serve(t *testing.T) (c *Client, asked *[]string) {
	t.Helper()
	asked = new([]string)
	file := func(w http.ResponseWriter, name, before, after string) {
		body, err := os.ReadFile(filepath.Join(answers, name))
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, before+string(body)+after)
	}
	mux := http.NewServeMux()
	for path, name := range map[string]string{
		"problems":              "listProblems.json",
		"problems/" + problem:   "getProblem.json",
		"incidents":             "listIncidents.json",
		"incidents/" + incident: "getIncident.json",
		"objectives":            "listObjectives.json",
		"agents":                "listAgents.json",
		"webhooks/dead":         "listDeadLetters.json",
		"webhooks/dead/1":       "getDeadLetter.json",
	} {
		answer := func(w http.ResponseWriter, _ *http.Request) { file(w, name, "", "") }
		mux.HandleFunc("GET /under/api/v1/"+path, answer)
	}
	done := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	mux.HandleFunc("POST /under/api/v1/incidents/"+incident+"/accept", done)
	mux.HandleFunc("POST /under/api/v1/webhooks/dead/1/resend", done)
	mux.HandleFunc("DELETE /under/api/v1/webhooks/dead/1", done)
	mux.HandleFunc("DELETE /under/api/v1/tracepoints/", done)
	note := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}
	mux.HandleFunc("PUT /under/api/v1/incidents/"+incident+"/acknowledge", note)
	mux.HandleFunc("PUT /under/api/v1/incidents/"+incident+"/mute", note)
	mux.HandleFunc("GET /under/api/v1/tracepoints", func(w http.ResponseWriter, _ *http.Request) {
		file(w, "getTracepoint.json", `{"next_cursor":null,"epoch":null,"items":[`, "]}")
	})
	mux.HandleFunc("/under/api/v1/tracepoints/", func(w http.ResponseWriter, _ *http.Request) {
		file(w, "getTracepoint.json", "", "")
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s: Authorization: %s", r.URL, r.Header.Get("Authorization"))
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL+"/under/", "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

// now is a time shortly after the times in the golden files.
var now = time.Date(2023, 11, 14, 22, 27, 0, 0, time.UTC)

// The output equals the golden files.
func TestShow(t *testing.T) {
	c, _ := serve(t)
	style := terminal.Style{Width: 100}
	for name, show := range map[string]func(w io.Writer) error{
		"incidents.txt": func(w io.Writer) error {
			list, err := c.Incidents(t.Context(), contract.ListIncidentsParams{}, 5)
			if err == nil {
				closed := list.Items[0]
				closed.ID = "0123456789abcdef"
				closed.Ended = new(closed.Opened.Add(200 * time.Second))
				closed.Closed = new(closed.Opened.Add(320 * time.Second))
				closed.End = &contract.IncidentEnd{
					Reason: contract.IncidentEndReasonMoved,
					Text:   "its requests go to stock\x1b-v2 now",
				}
				closed.Notes.Acknowledged = &contract.Note{By: "ada", Text: "ticket\x1b 42"}
				list.Items = append(list.Items, closed)
			}
			return errors.Join(err, ShowIncidents(w, list, style, now))
		},
		"incident.txt": func(w io.Writer) error {
			d, err := c.Incident(t.Context(), incident[:6])
			if err == nil {
				d.Incident.Objectives = []contract.IncidentObjective{{
					Sentence: "shop POST /checkout: 16 % of the requests failed in the last hour (objective: 1 %).",
					BurnRate: 16,
				}}
				d.Incident.Suspects[0].Instances = []contract.SuspectInstance{{
					Key:   "k8s.pod.name",
					Value: "checkout-7",
					Calls: 90,
					Part:  0.93,
				}}
			}
			return errors.Join(err, ShowIncident(w, d, style, now))
		},
		"objectives.txt": func(w io.Writer) error {
			list, err := c.Objectives(t.Context())
			return errors.Join(err, ShowObjectives(w, list, style, now))
		},
		"problems.txt": func(w io.Writer) error {
			list, err := c.Problems(t.Context(), contract.ListProblemsParams{}, 5)
			return errors.Join(err, ShowProblems(w, list, style, now))
		},
		"closed.txt": func(w io.Writer) error {
			list, err := c.Problems(t.Context(), contract.ListProblemsParams{Closed: new(true)}, 1)
			if err == nil {
				list.Items = list.Items[:1]
				x := &list.Items[0]
				x.Closed = new(x.Since.Add(5 * time.Minute))
			}
			return errors.Join(err, ShowProblems(w, list, style, now))
		},
		"problem-of-incident.txt": func(w io.Writer) error {
			d, err := c.Problem(t.Context(), problem[:6])
			if err == nil {
				d.Problem.Incident, d.Problem.State, d.Investigation = new(incident), contract.StateNone, nil
				d.Next = "It is part of an incident, which Sibyl investigates as a whole. Roll it back."
			}
			return errors.Join(err, ShowProblem(w, d, terminal.Style{Width: 80}, now))
		},
		"problem.txt": func(w io.Writer) error {
			d, err := c.Problem(t.Context(), problem[:6])
			if err == nil {
				d.Contrasts = []contract.Contrast{{
					Text: "host.name = stock-b: 410 ms a request against 62.1 ms with others (31 and 97 sampled)",
				}}
				d.Common = []contract.CommonEdges{{
					Text: "stock POST maps in stock UpdateBatch and cart GET maps in cart Get rise and fall together",
				}}
			}
			return errors.Join(err, ShowProblem(w, d, style, now))
		},
		"tracepoints.txt": func(w io.Writer) error {
			list, err := c.Tracepoints(t.Context(), contract.ListTracepointsParams{}, 0)
			return errors.Join(err, ShowTracepoints(w, list, style, now))
		},
		"agents.txt": func(w io.Writer) error {
			list, err := c.Agents(t.Context(), contract.ListAgentsParams{}, 0)
			if err == nil {
				list.Conflicts = 2
			}
			return errors.Join(err, ShowAgents(w, list, style, now))
		},
		"deadletters.txt": func(w io.Writer) error {
			list, err := Admin{c}.DeadLetters(t.Context(), 0)
			return errors.Join(err, ShowDeadLetters(w, list, style, now))
		},
		"deadletter.txt": func(w io.Writer) error {
			d, err := Admin{c}.DeadLetter(t.Context(), "1")
			return errors.Join(err, ShowDeadLetter(w, d, style, now))
		},
		"attention.txt": func(w io.Writer) error {
			list := &contract.IncidentList{Attention: []contract.ServiceAttention{
				{Service: "payment", State: contract.ServiceStateFailing},
				{Service: "orders", State: contract.ServiceStateSilent},
				{Service: "stock", State: contract.ServiceStateSlower},
			}}
			return ShowIncidents(w, list, style, time.Time{})
		},
		"learning-incidents.txt": func(w io.Writer) error {
			list, err := c.Incidents(t.Context(), contract.ListIncidentsParams{}, 0)
			if err == nil {
				list.Learning = true
			}
			return errors.Join(err, ShowIncidents(w, list, style, now))
		},
		"learning.txt": func(w io.Writer) error {
			return ShowProblems(w, &contract.ProblemList{Learning: true}, style, now)
		},
	} {
		var out strings.Builder
		if err := show(&out); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The name of an unknown problem is an error with a hint: to the incident of that name, or to the list.
func TestNoProblem(t *testing.T) {
	c, _ := serve(t)
	for name, want := range map[string]string{
		incident[:8]: "sibyl incidents " + incident[:8] + " shows it",
		"9":          "sibyl problems lists them", "ffff": "sibyl problems lists them",
	} {
		if _, err := c.Problem(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want: %s", name, err, want)
		}
	}
	err := noProblem(t.Context(), c, "1", &contract.ProblemList{Learning: true})
	if !strings.Contains(err.Error(), "is learning") {
		t.Errorf("while learning: %v", err)
	}
}

// Incidents are found by ID or prefix, and noted and accepted by it.
func TestIncidents(t *testing.T) {
	c, asked := serve(t)
	for _, err := range []error{
		c.AcknowledgeIncident(t.Context(), incident, "on it"), c.MuteIncident(t.Context(), incident, ""),
		c.AcceptIncident(t.Context(), strings.ToUpper(incident[:8]), "more items"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	path := "/under/api/v1/incidents"
	want := []string{
		"PUT " + path + "/" + incident + `/acknowledge {"text":"on it"}`,
		"PUT " + path + "/" + incident + `/mute {"text":""}`,
		"GET " + path, "POST " + path + "/" + incident + `/accept {"text":"more items"}`,
	}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if d, err := c.Incident(t.Context(), "1"); err != nil || d.Incident.ID != incident {
		t.Errorf("the first incident: %v", err)
	}
	for _, name := range []string{incident[:3], "ffff", "99"} {
		if _, err := c.Incident(t.Context(), name); err == nil || !strings.Contains(err.Error(), "sibyl incidents") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Problems and tracepoints are found by rank, name, ID or prefix.
func TestNames(t *testing.T) {
	c, asked := serve(t)
	for _, name := range []string{"1", problem[:4], strings.ToUpper(problem[:8]), problem} {
		if d, err := c.Problem(t.Context(), name); err != nil || d.Problem.ID != problem {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"9", "ffff", "42"} {
		if _, err := c.Problem(t.Context(), name); err == nil ||
			!strings.Contains(err.Error(), "sibyl problems lists them") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var x contract.Tracepoint
	body, err := os.ReadFile(filepath.Join(answers, "getTracepoint.json"))
	if err := errors.Join(err, json.Unmarshal(body, &x)); err != nil {
		t.Fatal(err)
	}
	*asked = nil
	_, err = c.Override(t.Context(), x.Name, contract.OverrideRequest{Kind: contract.OverrideRequestKindPin})
	if err != nil {
		t.Error(err)
	}
	if err := c.Withdraw(t.Context(), x.ID); err != nil {
		t.Error(err)
	}
	admin := Admin{c}
	if err := errors.Join(admin.Resend(t.Context(), "1"), admin.Drop(t.Context(), "1")); err != nil {
		t.Error(err)
	}
	want := []string{
		"GET /under/api/v1/tracepoints", "PUT /under/api/v1/tracepoints/" + x.ID + ` {"kind":"pin"}`,
		"DELETE /under/api/v1/tracepoints/" + x.ID,
		"POST /under/api/v1/webhooks/dead/1/resend", "DELETE /under/api/v1/webhooks/dead/1",
	}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if err := c.Withdraw(t.Context(), "nothing"); err == nil || !strings.Contains(err.Error(), x.Name) {
		t.Errorf("an unknown name: got error %v, want it to suggest %s", err, x.Name)
	}
}

// Every error carries a hint.
func TestErrors(t *testing.T) {
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	ask := func(url, token string) string {
		c, err := New(url, token)
		if err == nil {
			_, err = c.Problems(context.Background(), contract.ListProblemsParams{}, 1)
		}
		if err == nil {
			t.Fatalf("%d %s: no error", status, body)
		}
		return err.Error()
	}
	refusal := `{"type":"about:blank","title":"t","status":401,"detail":"this needs a token","instance":"i"}`
	for _, c := range []struct {
		status            int
		body, token, want string
	}{
		{401, refusal, "", "SIBYL_TOKEN"},
		{401, refusal, "x", "another one"},
		{401, strings.Replace(refusal, "{", `{"login":"x",`, 1), "x", "sibyl login --server " + server.URL},
		{403, strings.Replace(refusal, "401", "403", 1), "x", "this needs a token"},
		{502, "<html>", "", "is not Sibyl"},
		{502, "{}", "", "is not Sibyl"},
		{200, "[]", "", "use the same version"},
	} {
		status, body = c.status, c.body
		if got := ask(server.URL, c.token); !strings.Contains(got, c.want) {
			t.Errorf("%d: got %s, want %s", c.status, got, c.want)
		}
	}
	server.Close()
	if got := ask(server.URL, ""); !strings.Contains(got, "sibyl serve") {
		t.Errorf("nothing listens: %s", got)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	go func() { _ = rpc.Serve(l) }()
	defer rpc.Stop()
	for range 50 { // its first bytes come before the request or after it
		got := ask("http://"+l.Addr().String(), "")
		if !strings.Contains(got, "does not speak HTTP: name the address of the API with --server") {
			t.Errorf("a port of gRPC: %s", got)
		}
	}
	if got := ask("localhost:8321", ""); !strings.Contains(got, "want a URL like") {
		t.Errorf("an invalid URL: %s", got)
	}
}
