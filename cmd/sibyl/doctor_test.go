package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// TestDoctor: without a service, doctor checks the machine. It reports an address in use and a data directory that is
// a file as failures.
func TestDoctor(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	free := strings.Fields("doctor --http 127.0.0.1:9 --otlp-grpc 127.0.0.1:0 --otlp-http off -o json")
	check := func(code int, failed []string, args ...string) {
		t.Helper()
		r := sibyl(t, "", append(slices.Clone(free), args...)...)
		var got doctorReport
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != code || got.Failed != len(failed) {
			t.Fatalf("%q: exit code %d, %v: %s%s", args, r.code, err, r.out, r.err)
		}
		for _, f := range got.Checks {
			if (f.State == "failed") != slices.Contains(failed, f.Check) || f.Saw == "" ||
				f.State == "failed" && f.Do == "" {
				t.Errorf("%q: %+v", args, f)
			}
		}
	}
	check(cli.ExitOK, nil, "--data-dir", filepath.Join(t.TempDir(), "new"))
	check(cli.ExitError, []string{"otlp.http"}, "--data-dir", t.TempDir(), "--otlp-http", l.Addr().String())
	check(cli.ExitError, []string{"data"}, "--data-dir", "doctor_test.go")
	if r := sibyl(t, "", "doctor", "--journal-max-bytes", "never"); r.code != cli.ExitUsage {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// TestDoctorOfService: each finding about a service has a remedy.
func TestDoctorOfService(t *testing.T) {
	now := time.Now()
	healthy := func() *contract.Status {
		return &contract.Status{
			Ready:        true,
			RequestTypes: 3,
			Learning:     contract.Learning{GrowthLeftNs: new(int64(time.Hour))},
			Ingest:       contract.Ingest{Spans: 100, Requests: 2, LastArrival: new(now)},
			Closed:       map[string]int64{"complete": 50},
			Unusable:     map[string]int64{},
			Refused:      map[string]int64{},
			Coverage: contract.Coverage{
				Received:     contract.CoveredSpans{Spans: 100},
				ShareOfSpans: 1,
				ShareOfTime:  1,
			},
		}
	}
	for _, c := range []struct {
		change func(*contract.Status)
		check  string
		state  severity
		saw    string
	}{
		{func(*contract.Status) {}, "", fine, ""},
		{
			func(s *contract.Status) { s.Learning.OperationsLeftNs = new(int64(time.Hour)) },
			"learning", fine, "Not judged yet: single operations, for 60 min more; changes that take days",
		},
		{
			func(s *contract.Status) { s.Learning.SilenceLeftNs = new(int64(time.Hour)) },
			"learning", fine, "Not judged yet: requests that stop, for 60 min more; changes that take days",
		},
		{func(s *contract.Status) { s.Ready = false }, "service", warning, "starting"},
		{
			func(s *contract.Status) { s.Ready, s.Leader = false, new("http://sibyl-1:8321") },
			"service", fine, "http://sibyl-1:8321 leads",
		},
		{ // as after a recording
			func(s *contract.Status) { s.Ingest.LastArrival = new(now.Add(-time.Hour)) },
			"traces", warning, "ago",
		},
		{func(s *contract.Status) { s.Ingest = contract.Ingest{} }, "traces", failed, "No span"},
		{func(s *contract.Status) {
			s.Coverage = contract.Coverage{
				Received:     contract.CoveredSpans{Spans: 1000},
				ShareOfSpans: 0.98, ShareOfTime: 0.99,
			}
		}, "coverage", fine, "98 % of the 1,000 spans of the last minutes and 99 % of their time are judged."},
		{
			func(s *contract.Status) { s.Coverage.Warning, s.Coverage.Remedy = "40 % are judged.", "Do it." },
			"coverage", warning, "40 %",
		},
		{
			func(s *contract.Status) { s.FewCalls.Text = "2 of 40 operations had less." },
			"coverage", fine, "judged. 2 of 40 operations had less.",
		},
		{func(s *contract.Status) {
			s.FewCalls.Text, s.FewCalls.Remedy = "9 of 40 operations had less.", "Do it."
		}, "coverage", warning, "9 of 40"},
		{
			func(s *contract.Status) { s.Names.Warning, s.Names.Remedy = "Names hold IDs.", "Do it." },
			"operations", warning, "Names hold IDs.",
		},
		{
			func(s *contract.Status) { s.Epoch.Warning, s.Epoch.Remedy = "Decisions are late.", "Do it." },
			"decisions", warning, "late",
		},
		{func(s *contract.Status) { s.Closed["idle"] = 5 }, "parents", warning, "9.1 %"},
		{func(s *contract.Status) { s.Refused["too_many_groups"] = 7 }, "limits", warning, "7 requests"},
		{func(s *contract.Status) { s.Refused["too_many_contexts"] = 7 }, "limits", warning, "7 calling contexts"},
		{func(s *contract.Status) { s.Refused["too_many_names"] = 7 }, "limits", warning, "7 names"},
		{func(s *contract.Status) { s.Refused["too_many_tracepoints"] = 7 }, "limits", warning, "7 agent messages"},
		{func(s *contract.Status) { s.Closed["evicted"] = 7 }, "limits", warning, "memory"},
	} {
		s := healthy()
		c.change(s)
		for _, f := range checkService(s, now) {
			want := fine
			if f.Check == c.check {
				want = c.state
			}
			if f.State != want || f.Check == c.check && !strings.Contains(f.Saw, c.saw) || want != fine && f.Do == "" {
				t.Errorf("%s: %+v; want %s %q", c.check, f, want, c.saw)
			}
		}
	}
	skewed := checkService(healthy(), now.Add(-time.Minute))
	if !slices.ContainsFunc(skewed, func(f finding) bool { return f.Check == "clock" && f.State == warning }) {
		t.Errorf("%+v; want a warning about the clock", skewed)
	}
}

// TestDoctorWithoutToken: if a service needs a token, it is running, so its address isn't used by another program.
func TestDoctorWithoutToken(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w,
			`{"type":"about:blank","title":"t","status":401,"detail":"this needs a token","instance":"i"}`)
	}))
	defer service.Close()
	r := sibyl(t, "", "doctor", "--http", service.Listener.Addr().String(), "--otlp-grpc", "off",
		"--otlp-http", "127.0.0.1:0", "--data-dir", t.TempDir())
	if r.code != cli.ExitError || strings.Contains(r.out, "Another program") ||
		!strings.Contains(r.out, "sibyl token create --role viewer creates one") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
}

// TestDoctorElsewhere: the local settings say nothing about a service at another address, even on loopback, for
// example behind a forwarded port.
func TestDoctorElsewhere(t *testing.T) {
	for _, c := range []struct {
		server string
		own    bool
	}{
		{"http://127.0.0.1:7001", true},
		{"http://localhost:7001/", true},
		{"http://127.0.0.1:7002", false},
		{"http://10.0.0.1:7001", false},
		{"https://sibyl.example.com", false},
	} {
		settings := config.Config{HTTP: "127.0.0.1:7001"}
		if got := isOwn(&settings, c.server); got != c.own {
			t.Errorf("%s: own %t", c.server, got)
		}
	}
	r := sibyl(t, "", "doctor", "--server", "http://127.0.0.1:9", "-o", "json")
	if !strings.Contains(r.out, `"machine"`) || strings.Contains(r.out, `"otlp.grpc"`) {
		t.Errorf("%s, want the machine skipped", r.out)
	}
	if r.code != cli.ExitError {
		t.Errorf("exit code %d for a service that does not answer, though it is named: %s", r.code, r.out)
	}
}

// TestDoctorOfInstances: an instance is reported if it causes an open incident, or has differed since the start.
func TestDoctorOfInstances(t *testing.T) {
	incident := func(key string, part float64) []contract.Incident {
		return []contract.Incident{{
			ID: "0123456789abcdef",
			Suspects: []contract.IncidentSuspect{{
				Service:   "cart",
				Instances: []contract.SuspectInstance{{Key: key, Value: "cart-1", Part: part}},
			}},
		}}
	}
	closed := func() []contract.Incident {
		all := incident("host.name", 1)
		all[0].Onset = time.Date(2026, 7, 1, 9, 15, 0, 0, time.Local)
		all[0].Ended = new(all[0].Onset.Add(6 * time.Minute))
		all[0].Closed = new(all[0].Onset.Add(11 * time.Minute))
		return all
	}()
	since := &[]contract.ProvisionalInstance{{Text: "cart-2 takes 5 times as long."}}
	week := new(int64(time.Hour))
	for _, c := range []struct {
		name     string
		learning contract.Learning
		open     []contract.Incident
		state    severity
		saw, do  string
	}{
		{"nothing", contract.Learning{GrowthLeftNs: week}, nil, fine, "since Sibyl started", ""},
		{"later", contract.Learning{}, nil, fine, "After the first week", ""},
		{
			"since the start",
			contract.Learning{GrowthLeftNs: week, Provisional: since},
			nil, warning,
			"cart-2 takes 5 times", "may have started during an incident",
		},
		{
			"an incident",
			contract.Learning{GrowthLeftNs: week},
			incident("k8s.pod.name", 0.9), warning,
			"cart-1 (k8s.pod.name) carries 90 % of what cart adds", "sibyl incidents 01234567",
		},
		{
			"later",
			contract.Learning{},
			incident("host.name", 1), warning,
			"cart-1 (host.name)", "sibyl incidents 01234567",
		},
		{
			"both",
			contract.Learning{GrowthLeftNs: week, Provisional: since},
			incident("host.name", 1), warning,
			"requests. cart-2", "may have started during an incident",
		},
		{"a version", contract.Learning{GrowthLeftNs: week}, incident("service.version", 1), fine, "", ""},
		{"a part", contract.Learning{GrowthLeftNs: week}, incident("host.name", 0.3), fine, "", ""},
		{
			"closed",
			contract.Learning{},
			closed, fine,
			"Past: From 09:15 to 09:21 cart-1 (host.name) carried all of what cart added to requests. " +
				"See sibyl incidents 01234567.", "",
		},
		{
			"open and closed",
			contract.Learning{},
			append(incident("k8s.pod.name", 0.9), closed...), warning,
			"cart adds to requests. Past: From 09:15", "sibyl incidents 01234567",
		},
		{
			"no suspect",
			contract.Learning{GrowthLeftNs: week},
			[]contract.Incident{{ID: "0123456789abcdef"}},
			fine,
			"", "",
		},
	} {
		f := checkInstances(&contract.Status{Learning: c.learning}, c.open)
		if f.State != c.state || !strings.Contains(f.Saw, c.saw) || !strings.Contains(f.Do, c.do) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// TestDoctorOfTraffic: sample traces show missing names, sidecars and lost context.
func TestDoctorOfTraffic(t *testing.T) {
	s := look([]contract.Trace{
		{Spans: []contract.Span{{Service: "unknown_service:java"}}},
		{Spans: []contract.Span{{Service: "envoy"}}},
		{Spans: []contract.Span{{Service: "cart"}, {Service: "stock"}}},
	})
	for _, f := range []finding{s.names(), s.proxies(), s.single()} {
		if f.State != warning || f.Do == "" {
			t.Errorf("%+v; want a warning", f)
		}
	}
	s = look([]contract.Trace{{Spans: []contract.Span{{Service: "cart"}, {Service: "stock"}}}})
	for _, f := range []finding{s.names(), s.proxies(), s.single()} {
		if f.State != fine {
			t.Errorf("%+v; want no warning", f)
		}
	}
}

// Free space is rounded so that it has a unit.
func TestRounded(t *testing.T) {
	for bytes, want := range map[int64]string{3246391296: "3GiB", 1<<30 - 1: "1023MiB", 12<<30 + 5: "12GiB"} {
		if got := units.Bytes(rounded(bytes)); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// A webhook that refuses calls is a warning with its error.
func TestDoctorOfWebhooks(t *testing.T) {
	if got := checkWebhooks(nil); got != nil {
		t.Errorf("without webhooks: %+v", got)
	}
	all := []contract.Webhook{
		{Name: "a", Origin: "https://a.example"},
		{Name: "b", Origin: "http://b.example", Waiting: 3},
	}
	if got := checkWebhooks(all); len(got) != 1 || got[0].State != fine {
		t.Errorf("without errors: %+v", got)
	}
	all[1].LastError = "10.0.0.1: the address is not public: to permit it, set allow-private: true"
	if got := checkWebhooks(all); len(got) != 1 || got[0].State != warning ||
		!strings.Contains(got[0].Saw, "b (http://b.example)") ||
		!strings.Contains(got[0].Saw, "3 wait. Last error: 10.0.0.1") || got[0].Do == "" {
		t.Errorf("with an error: %+v", got)
	}
}

// If a hop without spans is known, it is the first remedy against missing parents.
func TestDoctorOfHops(t *testing.T) {
	s := &contract.Status{Closed: map[string]int64{"complete": 80, "idle": 20}}
	if f := checkParents(s); f.State != warning || !strings.HasPrefix(f.Do, "Sample whole traces") {
		t.Errorf("%+v", f)
	}
	s.Coverage.HopsWithoutSpans = []contract.HopWithoutSpans{{Caller: "gateway", Callee: "accounts"}}
	if f := checkParents(s); !strings.HasPrefix(f.Do, "Instrument the hop between gateway and accounts") {
		t.Errorf("%+v", f)
	}
}
