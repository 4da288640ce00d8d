package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// program is the path of the sibyl program.
var program string

// TestMain builds the sibyl program. If a demo started this program, TestMain runs main instead of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "demo") {
		main()
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sibylbench-test-*")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans temporary directories, too
	program = filepath.Join(dir, "sibyl")
	build := exec.Command("go", "build", "-o", program, "../../../cmd/sibyl")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build sibyl:", err)
		return 1
	}
	return m.Run()
}

// result is the result of a run of sibylbench.
type result struct {
	code     int
	out, err string
}

// sibylbench runs the program in this process.
func sibylbench(t *testing.T, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), append([]string{"--sibyl", program}, args...), strings.NewReader(""), &out, &err)
	return result{code, out.String(), err.String()}
}

// TestDemo: a demo without time for a search starts all processes, injects the fault, reads its location, and leaves
// nothing behind.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := sibylbench(t, "demo", "--headless", "--exit-when-located", "--fault=lock", "--seed=1", "--learning=3s",
		"--past=0", "--timeout=1s", "-o=json")
	var got demo.Result
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitError {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	want := shop.Edge{Service: "reviews", Operation: "cache.touch"}
	if got.Fault != shop.Lock || got.Located || got.Correct || got.Expected == nil || *got.Expected != want ||
		got.Seconds < 1 || got.Seed != 1 {
		t.Errorf("%s; want seed 1 of lock, at %v, not located", r.out, want)
	}
	if got.Tracepoints < 150 || got.Requests == 0 || got.Failed > 0 ||
		got.EnabledEver+got.EnabledPeak+got.RemainingEnabled > 0 {
		t.Errorf("%s; want successful requests, at least 150 tracepoints, none enabled", r.out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoSeries: a series without a fault opens no incident, and invalid options are usage errors.
func TestDemoSeries(t *testing.T) {
	r := sibylbench(t, "demo", "--faults=none", "--seeds=1", "--learning=3s", "--past=0", "--timeout=1s")
	if r.code != cli.ExitOK || !strings.Contains(r.out, "none   1 of 1") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	for _, args := range [][]string{
		{"--seeds=1", "--faults=flood"},
		{"--seeds=1", "--first-seed=0"},
		{"--learning=1s"},
	} {
		if r := sibylbench(t, append([]string{"demo"}, args...)...); r.code != cli.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// TestPlaces: a run in which nothing is located has no time from its incident, and leaves nothing enabled.
func TestPlaces(t *testing.T) {
	r := sibylbench(t, "places", "--only=shop", "--runs=1", "--faults=lock", "--learning=3s", "--past=0",
		"--timeout=1s", "-o=json")
	var got demo.Places
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitOK || len(got.Runs) != 1 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	x := got.Runs[0]
	if x.Program != "shop" || x.Fault != shop.Lock || x.Strategy != "adaptive" || x.First || x.Seconds != nil ||
		x.Offered < 150 || x.EverEnabled+x.LeftEnabled > 0 || x.ExtraSpans > 0 {
		t.Errorf("%s; want lock in the shop, not located, at least 150 tracepoints, none enabled", r.out)
	}
}

// TestOverhead: a short round measures each selection and leaves nothing behind.
func TestOverhead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := sibylbench(t, "overhead", "--rounds=1", "--time=3s", "--learning=3s", "--past=0", "--timeout=1s", "-o=json")
	var got demo.Overhead
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitOK || len(got.Loads) != 3 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	none, all := got.Loads[0], got.Loads[2]
	if none.On != demo.Nothing || none.Tracepoints > 0 || none.ExtraSpans > 0 || none.Throughput.Ratio != 1 ||
		none.P99.Median <= 0 {
		t.Errorf("no tracepoints enabled: %s", r.out)
	}
	if all.On != demo.Everything || all.Tracepoints < 150 || all.ExtraSpans < 5 || all.Throughput.Median <= 0 ||
		all.CPU.Ratio <= 0 {
		t.Errorf("all tracepoints enabled: %s", r.out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, args := range [][]string{{"--rounds=0"}, {"--time=0s"}, {"--seed=0"}, {"--fault=none"}, {"--learning=1s"}} {
		if r := sibylbench(t, append([]string{"overhead"}, args...)...); r.code != cli.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// TestDemoOptions: invalid options are usage errors.
func TestDemoOptions(t *testing.T) {
	for _, args := range [][]string{{"--fault=flood"}, {"--timeout=0s"}, {"--learning=-1s"}, {"-o=yaml"}, {"now"}} {
		if r := sibylbench(t, append([]string{"demo"}, args...)...); r.code != cli.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// TestDemoKilled: the processes of a killed demo exit, and its files are removed.
func TestDemoKilled(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "demo", "--headless", "--fault=none", "--sibyl="+program)
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	progress, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(progress)
	for lines.Scan() && !strings.Contains(lines.Text(), "processes of the shop are running") {
	}
	children := childrenOf(t, c.Process.Pid)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // reports the signal
	switch {
	case children == nil:
		t.Skip("this system does not list the children of a process")
	case len(children) < 7:
		t.Errorf("%d child processes, want at least 7", len(children))
	}
	deadline := time.Now().Add(time.Minute)
	for _, pid := range children {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %s is still running", pid)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "sibyl-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// childrenOf returns the IDs of the children of process pid. It returns nil if the system does not list them.
func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range lists {
		list, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has exited
		}
		all = append(all, strings.Fields(string(list))...)
	}
	return all
}

// alive reports whether a process runs. A zombie does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		err  string // part of the message
	}{
		{"", cli.ExitOK, ""},
		{"--help", cli.ExitOK, ""},
		{"nonsense", cli.ExitUsage, "unknown command"},
		{"path --input=none", cli.ExitUsage, "--input"},
		{"demo --faults=lock", cli.ExitUsage, "needs --seeds"},
		{"demo --sibyl=" + "./nowhere", cli.ExitUsage, "--sibyl"},
		{"places --only=kitchen", cli.ExitUsage, "the programs are shop, spring"},
		{"places --strategies=luck", cli.ExitUsage, "--strategies"},
		{"places --faults=flood", cli.ExitUsage, "--faults"},
		{"places --runs=0", cli.ExitUsage, "--runs"},
	} {
		r := sibylbench(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.err) || (c.err == "" && r.err != "") {
			t.Errorf("sibylbench %s: exit code %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.err)
		}
	}
}
