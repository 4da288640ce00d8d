package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/demo/springcatalog"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// needJava skips a test unless the Spring Boot service can be built and the test may take minutes.
func needJava(t *testing.T) {
	t.Helper()
	if !*soak {
		t.Skip("it takes minutes: run it with -soak")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	_, err = springcatalog.Build(t.Context(), javaHome(os.Environ()), filepath.Join(cache, "sibyl"), io.Discard)
	if missing, ok := errors.AsType[*springcatalog.UnavailableError](err); ok {
		t.Skip(missing)
	} else if err != nil {
		t.Fatal(err)
	}
}

// TestDemoJVM: Sibyl locates a method at fault of a service in Java by its name, with default settings, and disables
// its tracepoints. The demo leaves nothing behind.
func TestDemoJVM(t *testing.T) {
	needJava(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := sibylbench(t, "demo", "--jvm", "--headless", "--exit-when-located", "--fault=java-method", "--seed=2",
		"-o=json")
	var got demo.Result
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitOK {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	want := shop.Edge{Service: "catalog", Operation: "AttributeFormatter.format"}
	if got.Expected == nil || *got.Expected != want || got.Requests == 0 || got.Failed > 0 || got.Tracepoints < 250 {
		t.Errorf("%s; want a fault at %s, successful requests, at least 250 tracepoints", r.out, &want)
	}
	if !got.Correct || got.RemainingEnabled > 0 {
		t.Errorf("%s%s; want the fault located and no tracepoint left enabled", r.out, r.err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestJVM: a short run measures all arms and leaves nothing behind.
func TestJVM(t *testing.T) {
	needJava(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := sibylbench(t, "jvm", "--runs=1", "--faults=java-lock", "--learning=3s", "--past=0", "--timeout=1s",
		"--window=3s", "--search=1s", "--well=1s", "--back=1s", "-o=json")
	var got demo.JVMReport
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitOK || len(got.Runs) != 1 ||
		len(got.Phases) != 5 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	for _, p := range got.Phases {
		if len(p.Arms) != len(demo.Arms()) {
			t.Fatalf("%s: %d arms: %s", p.Phase, len(p.Arms), r.out)
		}
		for _, a := range p.Arms {
			wantSpans := a.Arm != demo.WithoutAgents
			if a.Requests == 0 || a.CPU.Median <= 0 || a.P50.Median <= 0 || (a.Spans > 0) != wantSpans {
				t.Errorf("%s, %s: %s", p.Phase, a.Arm, r.out)
			}
		}
		if alone, all := p.Arms[1].Spans, p.Arms[4].Spans; all < 5*alone {
			t.Errorf("%s: %.1f spans of a request with all tracepoints, %.1f without", p.Phase, all, alone)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestJVMUsage: faults need the services that have them.
func TestJVMUsage(t *testing.T) {
	for args, want := range map[string]string{
		"demo --fault=java-lock":             "--fault: java-lock needs --jvm",
		"demo --jvm --fault=lock":            "--fault: with --jvm the faults are",
		"demo --jvm --seeds=1 --faults=lock": `no fault is named "lock"`,
		"jvm --faults=lock":                  "no fault of the service in Java",
		"jvm --runs=0":                       "--runs",
		"jvm --window=0s":                    "--window",
	} {
		if r := sibylbench(t, strings.Fields(args)...); r.code != cli.ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s; want %s", args, r.code, r.err, want)
		}
	}
}
