package jvm_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
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
)

// maxJar is the largest size of the jar in bytes.
const maxJar = 1_000_000

// The jar is small. All classes of a JVM see the classes in its root: these are the entries and the bridge only.
func TestJar(t *testing.T) {
	if len(jvm.Jar) > maxJar {
		t.Errorf("the jar has %d bytes, want at most %d", len(jvm.Jar), maxJar)
	}
	z, err := zip.NewReader(bytes.NewReader(jvm.Jar), int64(len(jvm.Jar)))
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

// java returns the JVMs to test with, and a folder with the program of testdata, compiled with libraries, and the jar.
func java(t testing.TB, source string, libraries ...string) (programs []string, dir string) {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("javac is missing: install a JDK of Java 11 or later")
	}
	programs = []string{"java"}
	newest, err := filepath.Glob("/usr/lib/jvm/*-25-*/bin/java") // where Debian's packages and Temurin's install
	if err != nil {
		t.Fatal(err)
	}
	programs = append(programs, newest...)
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sibyl-agent.jar"), jvm.Jar, 0o600); err != nil {
		t.Fatal(err)
	}
	classes, err := zip.NewReader(bytes.NewReader(jvm.Jar), int64(len(jvm.Jar)))
	if err != nil {
		t.Fatal(err)
	}
	own, err := fs.Sub(classes, "agent") // the classes that only the agent sees
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "agent"), own); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "javac", "-g", "-cp", strings.Join(append(libraries, filepath.Join(dir, "agent")), ":"), "-d", dir, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return programs, dir
}

// start starts a program that prints its port, with additional environment variables, and returns its URL.
func start(t testing.TB, env []string, program string, args ...string) (c *exec.Cmd, url string) {
	t.Helper()
	c = exec.CommandContext(t.Context(), program, args...)
	c.Env = append(os.Environ(), env...)
	var messages bytes.Buffer
	c.Stderr = &messages
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("standard error of %s:\n%s", strings.Join(args, " "), messages.String())
		}
	})
	var port int
	for s := bufio.NewScanner(out); s.Scan(); { // the JVM may print warnings first
		if n, _ := fmt.Sscanf(s.Text(), "port %d", &port); n == 1 {
			return c, fmt.Sprintf("http://127.0.0.1:%d", port)
		}
	}
	t.Fatal("the program did not print its port")
	return nil, ""
}

// get returns the body of a successful response.
func get(t testing.TB, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, r.Status, body, err)
	}
	return string(body)
}

// profile is a report in JSON.
type profile struct {
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

// Counts of a profile are exact: of recursive methods, in threads that end, of methods that throw, and of objects whose
// constructors call others.
func TestProfile(t *testing.T) {
	programs, dir := java(t, "testdata/profile/Program.java")
	for _, program := range programs {
		report := filepath.Join(dir, "profile.json")
		out, err := exec.CommandContext(t.Context(), program, "-javaagent:"+filepath.Join(dir, "sibyl-agent.jar")+"=classes:profile\\..*#format:json#top:100#output:"+report,
			"-cp", dir, "profile.Program").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "done") {
			t.Fatalf("%s: %v: %s", program, err, out)
		}
		data, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var p profile
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
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
		for name, want := range map[string]int{
			"profile.Program.fib(int)": 21891, "profile.Program.work()": 600, "profile.Program.fail(int)": 10, "profile.Program.main(String[])": 1,
			"new profile.Program$Item": 1200, "new profile.Program$Base": 0, "new profile.Program$Point": 600,
		} {
			if got[name] != want {
				t.Errorf("%s: %s: %d, want %d", program, name, got[name], want)
			}
		}
	}
}

// The program finds arguments that are wrong, and runs without the agent.
func TestWrongArguments(t *testing.T) {
	programs, dir := java(t, "testdata/profile/Program.java")
	out, err := exec.CommandContext(t.Context(), programs[0], "-javaagent:"+filepath.Join(dir, "sibyl-agent.jar")+"=q:1", "-cp", dir, "profile.Program").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "done") || !strings.Contains(string(out), `unknown argument "q"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// The agent is loaded into a running JVM, and reports why if it does not start.
func TestAttach(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("attaching needs Linux")
	}
	programs, dir := java(t, "testdata/shop/Shop.java")
	for _, program := range programs {
		c, url := start(t, nil, program, "-cp", dir, "shop.Shop")
		pid := c.Process.Pid
		t.Cleanup(func() { removeJars(t, pid) })
		if err := jvm.Attach(t.Context(), pid, "p:("); err == nil || !strings.Contains(err.Error(), "p: Unclosed group") {
			t.Errorf("%s: got error %v, want that of the regular expression", program, err)
		}
		report := filepath.Join(dir, "attached.json")
		if err := jvm.Attach(t.Context(), pid, `p:shop\..*#format:json#output:`+report); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			get(t, url+"/order")
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil { // the JVM writes the report when it ends
			t.Fatal(err)
		}
		_ = c.Wait()
		data, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte(`{"method":"shop.Stock.take(int)","calls":60,`)) {
			t.Errorf("%s: %s", program, data)
		}
	}
}

// removeJars removes the jars that attaching left for a process.
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

// Processes that are not JVMs are left alone.
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

// The profiler and the JVM's own method timing (JFR, since Java 25) find the same numbers of calls, and times that
// differ by less than 5 %, in the same run.
func TestProfileAgreesWithJFR(t *testing.T) {
	programs, dir := java(t, "testdata/timing/Timing.java")
	if len(programs) < 2 {
		t.Skip("a JDK of Java 25 is missing")
	}
	worst := 0.0
	for range 3 { // a thread that loses its CPU between the two clocks takes longer by one of them only
		if worst = compareWithJFR(t, programs[1], dir); worst <= 0.05 {
			return
		}
	}
	t.Errorf("times differ by %.1f %%", 100*worst)
}

// compareWithJFR profiles a program with both and compares the calls. It returns the largest difference of a method's
// total time, relative to that of JFR.
func compareWithJFR(t *testing.T, program, dir string) (worst float64) {
	t.Helper()
	report, recording := filepath.Join(dir, "timing.json"), filepath.Join(dir, "timing.jfr")
	out, err := exec.CommandContext(t.Context(), program, "-javaagent:"+filepath.Join(dir, "sibyl-agent.jar")+"=classes:timing\\..*#format:json#top:100#output:"+report,
		"-XX:StartFlightRecording:filename="+recording+",method-timing=timing.Timing", "-cp", dir, "timing.Timing").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "done") {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var p profile
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
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
		t.Logf("%s: %d calls, %v; JFR: %d calls, %v: %.1f %%", name, m.Calls, time.Duration(m.TotalNS), x.calls, x.total, 100*difference)
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

// timing is the time of a method as JFR measures it.
type timing struct {
	calls int
	total time.Duration
}

// methodTimings returns the timings of a recording, by name of the method.
func methodTimings(t *testing.T, jfr, recording string) map[string]timing {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), jfr, "print", "--json", "--events", "jdk.MethodTiming", recording).Output()
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
