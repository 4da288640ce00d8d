package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// TestDemoKernel: a demo with the kernel agent starts it and leaves nothing behind.
func TestDemoKernel(t *testing.T) {
	requireKernel(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	got := kernelDemo(t, cli.ExitError, "--fault=dns", "--learning=3s", "--past=0", "--timeout=1s")
	if got.Wait != nil || len(got.ExpectedWaits) != 1 || got.ExpectedWaits[0] != "dns" || got.Requests == 0 ||
		got.Failed > 0 {
		t.Errorf("%+v; want successful requests, and no explanation within a second", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoExplains: Sibyl explains faults of the demo down to the class of the wait, the service and the host.
func TestDemoExplains(t *testing.T) {
	if !*soak {
		t.Skip("takes five minutes a fault; run it with -soak")
	}
	requireKernel(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{"disk", "fsync", "dns", "lock", "neighbour"} {
		got := kernelDemo(t, cli.ExitOK, "--fault="+fault, "--kernel")
		if !got.Correct || got.Wait == nil || !got.Wait.Correct || got.Wait.Host != host {
			t.Errorf("%s: %s", fault, got)
			continue
		}
		t.Logf("%s: %.0f s: %s", fault, got.Wait.Seconds, got.Wait.Sentence)
	}
}

func requireKernel(t *testing.T) {
	t.Helper()
	if _, err := kernel.Check(); errors.Is(err, kernel.ErrMissing) {
		t.Skip(err)
	}
}

// kernelDemo runs a demo with the kernel agent and returns its result.
func kernelDemo(t *testing.T, code int, args ...string) *demo.Result {
	t.Helper()
	r := sibylbench(t, append([]string{"demo", "--headless", "--exit-when-located", "--seed=1", "-o=json"}, args...)...)
	if code == cli.ExitError && !strings.HasSuffix(r.err, "\nsibylbench: no correct answer in time\n") {
		t.Errorf("a process failed: %s", r.err)
	}
	var got demo.Result
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != code {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	return &got
}
