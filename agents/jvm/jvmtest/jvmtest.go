// Package jvmtest compiles Java programs and runs them with the agent, for tests. Tests are skipped if there is no JDK.
package jvmtest

import (
	"archive/zip"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/jvm"
)

// newest matches the paths where Debian's and Temurin's packages install the JVM of Java 25.
const newest = "/usr/lib/jvm/*-25-*/bin/java"

// Compile compiles a source file, with libraries, into a new folder, and copies the agent there as sibyl-agent.jar. It
// returns the folder and the JVMs to test with: the default JVM and, if one is installed, a JVM of Java 25.
func Compile(t testing.TB, source string, libraries ...string) (programs []string, dir string) {
	t.Helper()
	for _, program := range []string{"javac", "java"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing: install a JDK of Java 11 or later", program)
		}
	}
	found, err := filepath.Glob(newest)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sibyl-agent.jar"), jvm.Jar(), 0o600); err != nil {
		t.Fatal(err)
	}
	path := strings.Join(append(libraries, unpack(t, dir)), ":")
	out, err := exec.CommandContext(t.Context(), "javac", "-g", "-cp", path, "-d", dir, source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return append([]string{"java"}, found...), dir
}

// Agent returns the option for starting a JVM with the agent in dir, with the given arguments for the agent.
func Agent(dir, arguments string) string {
	return "-javaagent:" + filepath.Join(dir, "sibyl-agent.jar") + "=" + arguments
}

// unpack writes the classes that only the agent can load into a folder in dir, for programs that call these classes. It
// returns the folder.
func unpack(t testing.TB, dir string) string {
	t.Helper()
	classes, err := zip.NewReader(bytes.NewReader(jvm.Jar()), int64(len(jvm.Jar())))
	if err != nil {
		t.Fatal(err)
	}
	const folder = "agent"
	own, err := fs.Sub(classes, folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, folder), own); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, folder)
}

// quick is an environment variable with options for short-lived JVMs, which take a quarter less time without the
// optimizing compiler and threads for garbage collection. If the variable is already set, as by `make test-long`, quick
// isn't used.
const quick = "JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// Start starts a program that prints its port, with additional environment variables, and returns its URL. The program
// ends with the test.
func Start(t testing.TB, env []string, program string, args ...string) (c *exec.Cmd, url string) {
	t.Helper()
	c = exec.CommandContext(t.Context(), program, args...)
	c.Env = append(os.Environ(), env...)
	name, _, _ := strings.Cut(quick, "=")
	chosen := slices.ContainsFunc(c.Env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	if _, measures := t.(*testing.B); !measures && !chosen {
		c.Env = append(c.Env, quick)
	}
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

// Get requests url and returns the body of the response. The test fails unless the status is 200.
func Get(t testing.TB, url string) string {
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
