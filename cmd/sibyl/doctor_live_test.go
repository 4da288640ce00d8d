package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/server"
)

// liveService is a running service of a test, which closes traces after half a second.
type liveService struct {
	t         *testing.T
	data      string // directory
	token     string // of doctor; may be empty
	otlp, api string // URLs
}

// startService runs a service until the test ends.
func startService(t *testing.T) *liveService {
	t.Helper()
	return startServiceAt(t, "127.0.0.1:0")
}

// startServiceAt runs a service with the given address of its API until the test ends.
func startServiceAt(t *testing.T, address string) *liveService {
	t.Helper()
	env := map[string]string{
		"SIBYL_DATA_DIR":         t.TempDir(),
		"SIBYL_HTTP":             address,
		"SIBYL_OTLP_HTTP":        "127.0.0.1:0",
		"SIBYL_OTLP_GRPC":        "off",
		"SIBYL_EPOCH":            "1s",
		"SIBYL_LEARNING":         "1s",
		"SIBYL_ASSEMBLY_TIMEOUT": "500ms",
	}
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(&e.Config, server.Build{Version: "v1"},
		slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := fmt.Sprint(<-served, s.Close()); err != "<nil> <nil>" {
			t.Error(err)
		}
	})
	at := s.Addresses()
	l := &liveService{
		t: t, data: env["SIBYL_DATA_DIR"], otlp: "http://" + at.HTTP.String(), api: "http://" + at.API.String(),
	}
	l.check("service", fine, "is ready")
	return l
}

// newToken creates a token.
func (l *liveService) newToken(role access.Role) string {
	l.t.Helper()
	secret, _, err := access.Open(l.data).Create(access.Token{Role: role}, time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	return secret
}

// sentSpan is a span of a request in a test. Its trace starts when it is sent.
type sentSpan struct {
	trace, id, parent int
	service, name     string
	kind              int // of OTLP
	from, to          time.Duration
}

// send sends spans, which start relative to at, in one request, each with its own resource.
func (l *liveService) send(at time.Time, spans ...sentSpan) {
	l.t.Helper()
	var all []string
	for _, s := range spans {
		resource := ""
		if s.service != "" {
			resource = fmt.Sprintf(`{"key":"service.name","value":{"stringValue":%q}}`, s.service)
		}
		id := func(n int) string {
			if n == 0 {
				return ""
			}
			return fmt.Sprintf("%016x", n)
		}
		all = append(all, fmt.Sprintf(`{
			"resource": {"attributes": [%s]},
			"scopeSpans": [{"spans": [{
				"traceId": "%032x", "spanId": %q, "parentSpanId": %q, "name": %q, "kind": %d,
				"startTimeUnixNano": "%d", "endTimeUnixNano": "%d"
			}]}]
		}`, resource, s.trace, id(s.id), id(s.parent), s.name, s.kind,
			at.Add(s.from).UnixNano(), at.Add(s.to).UnixNano()))
	}
	body := strings.NewReader(`{"resourceSpans":[` + strings.Join(all, ",") + `]}`)
	r, err := http.Post(l.otlp+"/v1/traces", "application/json", body) //nolint:noctx // a test
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		l.t.Fatalf("%s: %s", r.Status, text)
	}
}

// closed returns the numbers of closed traces by reason.
func (l *liveService) closed() map[string]int64 {
	l.t.Helper()
	r, err := http.Get(l.api + "/api/v1/status") //nolint:noctx // a test
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	var status contract.Status
	if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
		l.t.Fatal(err)
	}
	return status.Closed
}

// check runs doctor until the check name has the given state and reports saw. It fails the test if this doesn't happen
// in time.
func (l *liveService) check(name string, state severity, saw string) {
	l.t.Helper()
	l.checkAt(l.api, name, state, saw)
}

func (l *liveService) checkAt(api, name string, state severity, saw string) {
	l.t.Helper()
	var got finding
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		r := sibylIn(l.t, "", map[string]string{"SIBYL_TOKEN": l.token}, "doctor", "--server", api, "-o", "json")
		var report doctorReport
		if err := json.Unmarshal([]byte(r.out), &report); err != nil {
			l.t.Fatalf("%v: %+v", err, r)
		}
		i := slices.IndexFunc(report.Checks, func(f finding) bool { return f.Check == name })
		if i < 0 {
			continue
		}
		if got = report.Checks[i]; got.State == state && strings.Contains(got.Saw, saw) {
			if (state == warning || state == failed) && got.Do == "" {
				l.t.Errorf("%+v has no remedy", got)
			}
			if (r.code == cli.ExitError) != (report.Failed > 0) {
				l.t.Errorf("exit code %d with %d failed checks", r.code, report.Failed)
			}
			return
		}
	}
	l.t.Fatalf("%+v, want %s %q", got, state, saw)
}

// Kinds of spans in OTLP.
const (
	serverSpan = 2
	clientSpan = 3
)

// twoServices returns the spans of a request across two services. If missing is true, the call between them is
// missing.
func twoServices(trace int, missing bool) []sentSpan {
	all := []sentSpan{
		{trace, 1, 0, "shop", "GET /cart", serverSpan, 0, 30 * time.Millisecond},
		{trace, 2, 1, "shop", "GET", clientSpan, 5 * time.Millisecond, 25 * time.Millisecond},
		{trace, 3, 2, "stock", "GET /stock", serverSpan, 6 * time.Millisecond, 24 * time.Millisecond},
	}
	if missing {
		return []sentSpan{all[0], all[2]}
	}
	return all
}

// TestDoctorOfTidyTraffic: complete traces of two services are fine, even if they arrive twice. Duplicates are
// counted, but don't count as arrivals.
func TestDoctorOfTidyTraffic(t *testing.T) {
	l := startService(t)
	l.check("traces", failed, "No span has arrived.")
	l.check("parents", skipped, "No trace has been closed yet.")
	send := func() {
		for i := range 50 {
			l.send(time.Now(), twoServices(i+1, false)...)
		}
	}
	send()
	arrived := time.Now()
	l.check("parents", fine, "None of 50 closed traces")
	l.check("coverage", fine, "All of the 150 spans of the last minutes and all of their time are judged.")
	l.check("traces", fine, "150 spans in 50 export requests arrived.")
	l.check("limits", fine, "All traffic is used.")
	l.check("names", fine, "name 2 services")
	l.check("proxies", fine, "")
	l.check("context", fine, "")
	l.check("instances", fine, "since Sibyl started, no instance")
	send()
	l.check("traces", fine, "150 spans since the start had arrived before and were ignored.")
	l.check("limits", fine, "All traffic is used.")
	later := l.proxy(arrived.Add(time.Hour + 30*time.Second))
	send()
	l.checkAt(later, "traces", warning, "The last request that could be analysed arrived 60 min ago. 300 spans")
	l.checkAt(later, "clock", warning, "differ by")
}

// proxy returns the URL of a proxy for the API whose clock stands at the given time.
func (l *liveService) proxy(at time.Time) string {
	api, err := url.Parse(l.api)
	if err != nil {
		l.t.Fatal(err)
	}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(api) },
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", at.UTC().Format(http.TimeFormat))
			return nil
		},
	})
	l.t.Cleanup(s.Close)
	return s.URL
}

// TestDoctorOfAccess: a service without a token is open to this machine, or worse, to others through a proxy.
func TestDoctorOfAccess(t *testing.T) {
	l := startService(t)
	l.check("access", warning, "No token exists")
	l.token = "unneeded"
	l.check("access", warning, "No token exists")
	if f := checkAccess("https://sibyl.example.com", true); f.State != failed || f.Do == "" {
		t.Errorf("through an unrecognized proxy: %+v", f)
	}
	l.token = l.newToken(access.Viewer)
	l.check("access", fine, "need a token")
}

// TestDoctorOfMissingParents: 9 of 10 traces have a span whose parent never arrives.
func TestDoctorOfMissingParents(t *testing.T) {
	l := startService(t)
	for i := range 10 {
		l.send(time.Now(), twoServices(i+1, i > 0)...)
	}
	l.check("parents", warning, "90 % of 10 closed traces")
}

// TestDoctorOfUntidyTraffic: spans without names, of a sidecar, and without context.
func TestDoctorOfUntidyTraffic(t *testing.T) {
	l := startService(t)
	for i := range 20 {
		l.send(time.Now(), sentSpan{3*i + 1, 1, 0, "", "GET /a", serverSpan, 0, time.Millisecond})
		l.send(time.Now(), sentSpan{3*i + 2, 1, 0, "istio-proxy", "GET /b", serverSpan, 0, time.Millisecond})
		l.send(time.Now(),
			sentSpan{3*i + 3, 1, 0, "shop", fmt.Sprintf("GET /c/l%cOeioB", 'A'+i), serverSpan, 0, time.Millisecond})
	}
	l.check("names", warning, "Some spans have no service.name.")
	l.check("proxies", warning, "istio-proxy appears as a service.")
	l.check("context", warning, "0 of")
	l.check("operations", warning, "shop GET /c/{} (20 names).")
}

// TestDoctorOfLimits sends, for each limit, the traffic that exceeds it.
func TestDoctorOfLimits(t *testing.T) {
	root := func(trace int) sentSpan {
		return sentSpan{trace, 1, 0, "shop", "GET /cart", serverSpan, 0, time.Millisecond}
	}
	for _, c := range []struct {
		name    string
		send    func(l *liveService)
		saw     string
		covered string // result of the coverage check
	}{
		{"rejected", func(l *liveService) {
			l.send(time.Now(), root(1), sentSpan{1, 0, 1, "shop", "x", clientSpan, 0, 1})
		}, "1 span rejected as malformed", "50 % of the spans, with none of the time, could not be read."},
		{
			"no duration",
			func(l *liveService) { l.send(time.Now(), sentSpan{1, 1, 0, "shop", "x", serverSpan, 0, 0}) },
			"1 request that took no time",
			"all of the spans, with all of the time, belong to requests that took no time",
		},
		{
			"too long", func(l *liveService) {
				l.send(time.Now(), sentSpan{1, 1, 0, "shop", "x", serverSpan, -50 * time.Hour, 0})
			}, "1 request that took no time, or more than 39 hours",
			"belong to requests that took no time, or more than 39 hours.",
		},
		{"late", func(l *liveService) {
			l.send(time.Now(), root(1))
			l.check("parents", fine, "1 closed trace")
			l.send(time.Now(), sentSpan{1, 2, 1, "shop", "late", clientSpan, 0, 1})
		}, "1 span that arrived after their trace was closed", "arrived after their trace was closed."},
		{"age", func(l *liveService) {
			trace, idle := 1, int64(0)
			for id := 2; ; id++ {
				closed := l.closed()
				if closed["age"] > 0 {
					return
				}
				if closed["idle"] > idle { // the machine paused for half a second, so another trace must stay open
					trace, idle = trace+1, closed["idle"]
				}
				l.send(time.Now(), sentSpan{trace, id, 1, "shop", "x", clientSpan, 0, 1})
				time.Sleep(100 * time.Millisecond)
			}
		}, "closed early because spans kept arriving", "belong to traces that were closed early."},
		{"size", func(l *liveService) {
			spans := make([]sentSpan, 100_001)
			for i := range spans {
				spans[i] = sentSpan{1, i + 2, 1, "shop", "x", clientSpan, 0, 1}
			}
			l.send(time.Now(), spans...)
		}, "1 trace closed early at the size limit", "belong to traces that were closed early."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := startService(t)
			c.send(l)
			l.check("limits", warning, c.saw)
			l.check("coverage", warning, c.covered)
		})
	}
}

// TestReplayOfDuplicates: the summary of a second replay reports that all of its spans were ignored.
func TestReplayOfDuplicates(t *testing.T) {
	l := startService(t)
	recording := request(t, cart)
	replayed := func() string {
		r := sibylIn(t, recording, map[string]string{serverVariable: l.api}, "replay", "--to", l.otlp, "-")
		if r.code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
		return r.out
	}
	if got := replayed(); !strings.Contains(got, "1 trace sent: 2 spans accepted, 0 rejected") {
		t.Errorf("the first time: %s", got)
	}
	l.check("parents", fine, "1 closed trace")
	if got := replayed(); !strings.Contains(got, "1 trace sent: 2 spans, all ignored as duplicates, 0 rejected") {
		t.Errorf("the second time: %s", got)
	}
}
