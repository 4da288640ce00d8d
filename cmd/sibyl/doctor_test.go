package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// TestDoctor: without a service, doctor checks the machine; an address in use and a data directory that is a file fail.
func TestDoctor(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	free := []string{"doctor", "--server", "http://127.0.0.1:9", "--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "off", "-o", "json"}
	check := func(code int, failed []string, args ...string) {
		t.Helper()
		r := sibyl(t, "", append(slices.Clone(free), args...)...)
		var got doctorReport
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != code || got.Failed != len(failed) {
			t.Fatalf("%q: exit code %d, %v: %s%s", args, r.code, err, r.out, r.err)
		}
		for _, f := range got.Checks {
			if (f.State == "failed") != slices.Contains(failed, f.Check) || f.Saw == "" || f.State == "failed" && f.Do == "" {
				t.Errorf("%q: %+v", args, f)
			}
		}
	}
	check(cli.ExitOK, nil, "--data-dir", filepath.Join(t.TempDir(), "new"))
	check(cli.ExitError, []string{"otlp.http"}, "--data-dir", t.TempDir(), "--otlp-http", l.Addr().String())
	check(cli.ExitError, []string{"data"}, "--data-dir", "doctor_test.go")
	if r := sibyl(t, "", "doctor", "--epoch", "never"); r.code != cli.ExitUsage {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// TestDoctorOfService: each finding about a service has a remedy.
func TestDoctorOfService(t *testing.T) {
	now := time.Now()
	healthy := func() *contract.Status {
		return &contract.Status{
			Ready: true, RequestTypes: 3, Learning: contract.Learning{GrowthLeftNs: new(int64(time.Hour))}, Ingest: contract.Ingest{Spans: 100, Requests: 2, LastArrival: new(now)},
			Closed: map[string]int64{"complete": 50}, Unusable: map[string]int64{}, Refused: map[string]int64{},
		}
	}
	for _, c := range []struct {
		change func(*contract.Status)
		check  string
		state  severity
		saw    string
	}{
		{func(*contract.Status) {}, "", fine, ""},
		{func(s *contract.Status) { s.Learning.OperationsLeftNs = new(int64(time.Hour)) }, "learning", fine, "Not judged yet: single operations, for 60 min more; changes that take days"},
		{func(s *contract.Status) {
			s.Learning.Provisional = &[]contract.ProvisionalInstance{{Text: "cart-1 takes 5 times as long."}}
		}, "instances", warning, "cart-1 takes 5 times"},
		{func(s *contract.Status) { s.Ready = false }, "service", warning, "starting"},
		{func(s *contract.Status) { s.Ingest.LastArrival = new(now.Add(-time.Hour)) }, "traces", failed, "ago"},
		{func(s *contract.Status) { s.Ingest = contract.Ingest{} }, "traces", failed, "No span"},
		{func(s *contract.Status) { s.Unusable["incomplete"] = 5 }, "parents", warning, "10 %"},
		{func(s *contract.Status) { s.Refused["too_many_groups"] = 7 }, "limits", warning, "7 requests"},
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
