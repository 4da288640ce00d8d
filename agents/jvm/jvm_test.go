package jvm_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm"
	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
)

// maxJar is the largest size of the jar in bytes.
const maxJar = 1_000_000

// The jar is small. All classes of a JVM see the classes in its root, so these are only the entry points and the
// bridge.
func TestJar(t *testing.T) {
	if len(jvm.Jar()) > maxJar {
		t.Errorf("the jar has %d bytes, want at most %d", len(jvm.Jar()), maxJar)
	}
	z, err := zip.NewReader(bytes.NewReader(jvm.Jar()), int64(len(jvm.Jar())))
	if err != nil {
		t.Fatal(err)
	}
	visible := regexp.MustCompile(`^io/github/sibyltrace/agent/(bridge/\w+|Entry|Extension)(\$\w+)?\.class$`)
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, ".class") && !strings.HasPrefix(f.Name, "agent/") && !visible.MatchString(f.Name) {
			t.Errorf("the jar contains %s", f.Name)
		}
	}
}

// Short names for helpers that nearly all tests here call.
var (
	java  = jvmtest.Compile
	start = jvmtest.Start
	get   = jvmtest.Get
)

// profile is a report in JSON.
type profile struct {
	Source  string
	Methods []struct {
		Method  string
		Calls   int
		OwnNS   int64 `json:"own_ns"`
		TotalNS int64 `json:"total_ns"`
	}
	Objects []struct {
		Class string
		Count int
	}
}

// profileOf runs a program of testdata under the profiler, with further arguments of the agent and flags of the JVM. It
// returns the profile of the program's package.
func profileOf(t *testing.T, program, dir, class, arguments string, flags ...string) (p profile) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "profile.json")
	classes, _, _ := strings.Cut(class, ".")
	agent := jvmtest.Agent(dir, "classes:"+classes+`\..*#format:json#top:100#output:`+report+arguments)
	out, err := exec.CommandContext(t.Context(), program, append(flags, agent, "-cp", dir, class)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "done") {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return p
}

// programCalls are the calls of methods of the program profile.Program.
var programCalls = map[string]int{
	"profile.Program.fib(int)": 21891, "profile.Program.work()": 600, "profile.Program.fail(int)": 10,
	"profile.Program.main(String[])": 1,
}

// Counts in a profile are exact for recursive methods, threads that end, methods that throw, and objects whose
// constructors call others.
func TestProfile(t *testing.T) {
	programs, dir := java(t, "testdata/profile/Program.java")
	for _, program := range programs {
		p := profileOf(t, program, dir, "profile.Program", "")
		got := make(map[string]int)
		for _, m := range p.Methods {
			got[m.Method] = m.Calls
			if m.OwnNS < 0 || m.OwnNS > m.TotalNS {
				t.Errorf("%s: own time %d, total time %d", m.Method, m.OwnNS, m.TotalNS)
			}
		}
		for _, o := range p.Objects {
			got["new "+o.Class] = o.Count
		}
		want := maps.Clone(programCalls)
		want["new profile.Program$Item"] = 1200
		want["new profile.Program$Base"], want["new profile.Program$Point"] = 0, 600
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s: %s: %d, want %d", program, name, got[name], n)
			}
		}
	}
}

// If only calls and their time are requested, JFR counts them exactly. Before Java 25 the agent counts them, and the
// report says why.
func TestProfileOfCalls(t *testing.T) {
	programs, dir := java(t, "testdata/profile/Program.java")
	for _, program := range programs {
		p := profileOf(t, program, dir, "profile.Program", "#measure:calls")
		got := make(map[string]int)
		for _, m := range p.Methods {
			got[m.Method] = m.Calls
			if m.TotalNS <= 0 && m.Method != "profile.Program.fail(int)" {
				t.Errorf("%s: %s: total time %d", program, m.Method, m.TotalNS)
			}
		}
		for name, n := range programCalls {
			if got[name] != n {
				t.Errorf("%s: %s: %d, want %d", program, name, got[name], n)
			}
		}
		wantSource := "JFR"
		if version := javaVersion(t, program); version < 25 {
			wantSource = fmt.Sprintf("the agent, since JFR times methods since Java 25, and this is Java %d", version)
		}
		if p.Source != wantSource {
			t.Errorf("%s: measured by %q, want %q", program, p.Source, wantSource)
		}
	}
	if len(programs) < 2 {
		t.Skip("only the fallback ran: a JDK of Java 25 is missing")
	}
}

// javaVersion returns the Java version of the JVM program.
func javaVersion(t *testing.T, program string) (version int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "-version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(out), `version "`)
	if _, err := fmt.Sscanf(text, "%d", &version); err != nil {
		t.Fatalf("%s: %s", program, out)
	}
	return version
}

// The program runs without the agent if its arguments are wrong.
func TestWrongArguments(t *testing.T) {
	programs, dir := java(t, "testdata/profile/Program.java")
	out, err := exec.CommandContext(t.Context(), programs[0], jvmtest.Agent(dir, "q:1"), "-cp", dir,
		"profile.Program").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "done") || !strings.Contains(string(out), `unknown argument "q"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// The agent is loaded into a running JVM. If it doesn't start, it reports why.
func TestAttach(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("attaching needs Linux")
	}
	programs, dir := java(t, "testdata/shop/Shop.java")
	for _, program := range programs {
		c, url := start(t, nil, program, "-cp", dir, "shop.Shop")
		pid := c.Process.Pid
		t.Cleanup(func() { removeJars(t, pid) })
		if err := jvm.Attach(t.Context(), pid, "p:("); err == nil ||
			!strings.Contains(err.Error(), "p: Unclosed group") {
			t.Errorf("%s: got error %v, want that of the regular expression", program, err)
		}
		report, calls := filepath.Join(dir, "attached.json"), filepath.Join(dir, "calls.json")
		for _, arguments := range []string{"#output:" + report, "#measure:calls#output:" + calls} {
			if err := jvm.Attach(t.Context(), pid, `p:shop\..*#format:json#top:100`+arguments); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			get(t, url+"/order")
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil { // the JVM writes the report on exit
			t.Fatal(err)
		}
		_ = c.Wait()
		for _, file := range []string{report, calls} {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(data, []byte(`{"method":"shop.Stock.take(int)","calls":60,`)) {
				t.Errorf("%s: %s: %s", program, filepath.Base(file), data)
			}
		}
	}
}

// removeJars removes the jars that attaching left for process pid.
func removeJars(t *testing.T, pid int) {
	t.Helper()
	jars, err := filepath.Glob(fmt.Sprintf("/tmp/sibyl-agent-%d-*.jar", pid))
	if err != nil || len(jars) == 0 {
		t.Errorf("found no jar of process %d: %v", pid, err)
	}
	for _, jar := range jars {
		if err := os.Remove(jar); err != nil {
			t.Error(err)
		}
	}
}

// Processes that aren't JVMs are left alone.
func TestAttachToOthers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("attaching needs Linux")
	}
	for pid, want := range map[int]string{os.Getpid(): "is not a JVM", 1 << 30: "there is no process"} {
		if err := jvm.Attach(t.Context(), pid, "p:x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("process %d: got error %v, want %s", pid, err, want)
		}
	}
}

// The profiler and the JVM's own method timing (JFR, since Java 25) report the same numbers of calls and times that
// differ by less than 5 % in the same run.
func TestProfileAgreesWithJFR(t *testing.T) {
	programs, dir := java(t, "testdata/timing/Timing.java")
	if len(programs) < 2 {
		t.Skip("a JDK of Java 25 is missing")
	}
	worst := 0.0
	for range 3 { // if a thread loses its CPU between the two clock readings, only one of them counts the time
		if worst = compareWithJFR(t, programs[1], dir); worst <= 0.05 {
			return
		}
	}
	t.Errorf("times differ by %.1f %%", 100*worst)
}

// compareWithJFR profiles a program with both and compares the calls. It returns the largest relative difference of a
// method's total time from JFR's.
func compareWithJFR(t *testing.T, program, dir string) (worst float64) {
	t.Helper()
	recording := filepath.Join(t.TempDir(), "timing.jfr")
	p := profileOf(t, program, dir, "timing.Timing", "",
		"-XX:StartFlightRecording:filename="+recording+",method-timing=timing.Timing")
	theirs := methodTimings(t, filepath.Join(filepath.Dir(program), "jfr"), recording)
	for _, m := range p.Methods {
		name, _, _ := strings.Cut(m.Method, "(")
		x, found := theirs[name]
		if !found || name == "timing.Timing.work" || name == "timing.Timing.main" || strings.Contains(name, "lambda") {
			continue // they may not have returned when JFR reports
		}
		delete(theirs, name)
		difference := float64(m.TotalNS)/float64(x.total) - 1
		worst = max(worst, math.Abs(difference))
		t.Logf("%s: %d calls, %v; JFR: %d calls, %v: %.1f %%",
			name, m.Calls, time.Duration(m.TotalNS), x.calls, x.total, 100*difference)
		if m.Calls != x.calls {
			t.Errorf("%s: %d calls; JFR: %d", name, m.Calls, x.calls)
		}
	}
	for _, name := range []string{"outer", "middle", "inner", "spin"} {
		if _, left := theirs["timing.Timing."+name]; left {
			t.Errorf("the profile lacks %s", name)
		}
	}
	return worst
}

// timing is the time of a method, measured by JFR.
type timing struct {
	calls int
	total time.Duration
}

// methodTimings returns the timings in a recording, by name of the method.
func methodTimings(t *testing.T, jfr, recording string) map[string]timing {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), jfr, "print", "--json", "--events", "jdk.MethodTiming",
		recording).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Recording struct {
			Events []struct {
				Values struct {
					Invocations int
					Average     string // like PT0.000123S
					Method      struct {
						Name string
						Type struct{ Name string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	timings := make(map[string]timing)
	for _, e := range r.Recording.Events {
		v := e.Values
		average, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(v.Average, "PT")))
		if err != nil {
			continue // no call
		}
		name := strings.ReplaceAll(v.Method.Type.Name, "/", ".") + "." + v.Method.Name
		timings[name] = timing{v.Invocations, average * time.Duration(v.Invocations)}
	}
	return timings
}
