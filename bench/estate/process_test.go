package estate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family starts a shell with a child in its own session, as PostgreSQL has, and returns the process and the child's ID.
func family(t *testing.T, g *group) (*process, int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "child")
	child := fmt.Sprintf("echo $$ >%[1]s.new; mv %[1]s.new %[1]s; exec sleep 600", file)
	p, err := g.start(command{
		name: "family",
		path: "/bin/sh",
		args: []string{"-c", "trap '' TERM; setsid sh -c '" + child + "' & wait; sleep 600"},
		env:  os.Environ(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 1200 {
		if text, err := os.ReadFile(file); err == nil {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return p, pid
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the child does not start: " + p.logTail())
	return nil, 0
}

// waitGone waits until process pid has exited.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for range 1200 {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil ||
			strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("process %d is still running", pid)
}

// stop ends a process that ignores SIGTERM and is stopped, including descendants in other sessions.
func TestStop(t *testing.T) {
	g := &group{logs: t.TempDir()}
	p, child := family(t, g)
	p.signal(syscall.SIGSTOP)
	g.stop(p, 200*time.Millisecond)
	waitGone(t, p.pid())
	waitGone(t, child)
	if len(g.running) != 0 {
		t.Errorf("%d processes are running, want 0", len(g.running))
	}
}

// Everything is stopped after a panic.
func TestClosePanic(t *testing.T) {
	g := &group{logs: t.TempDir()}
	p, child := family(t, g)
	func() {
		defer func() { _ = recover() }()
		defer g.close()
		panic("test")
	}()
	waitGone(t, p.pid())
	waitGone(t, child)
}

// The reaper kills the groups that were not forgotten and removes the folder.
func TestReap(t *testing.T) {
	g := &group{logs: t.TempDir()}
	p, child := family(t, g)
	q, other := family(t, g)
	defer g.close()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Reap(strings.NewReader(fmt.Sprintf("+%d\n+%d\n-%d\n", p.pid(), q.pid(), q.pid())), dir); err != nil {
		t.Fatal(err)
	}
	waitGone(t, p.pid())
	waitGone(t, child)
	if !q.alive() || syscall.Kill(other, 0) != nil {
		t.Error("a forgotten group was killed")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder remains: %v", err)
	}
	if err := Reap(strings.NewReader("+1\n"), dir); err == nil {
		t.Error("no error for process 1")
	}
}

// run returns the output of a command that fails, and the cause of an interrupt.
func TestGroupRun(t *testing.T) {
	g := &group{logs: t.TempDir()}
	sh := func(script string) command {
		return command{name: "sh", path: "/bin/sh", args: []string{"-c", script}, env: os.Environ()}
	}
	if err := g.run(t.Context(), sh("exit 0")); err != nil {
		t.Error(err)
	}
	if err := g.run(t.Context(), sh("echo broken >&2; exit 3")); err == nil ||
		!strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want one with the output", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.run(ctx, sh("sleep 600")); err == nil {
		t.Error("no error after an interrupt")
	}
}

// A package that is installed with the same versions is not installed again; a failure carries the client's output.
func TestInstall(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	client := fmt.Sprintf(`#!/bin/sh
echo "$@" >>%[1]s/calls
[ -e %[1]s/broken ] && echo no such version >&2 && exit 1
exit 0
`, bin)
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(client), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	i := &installer{cache: cache, env: os.Environ(), out: t.Output()}
	p := &packageInfo{name: "x", registry: npm, install: []string{"x@1.0.0"}}
	for range 2 {
		if err := i.install(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	p.install = []string{"x@2.0.0"}
	if err := os.WriteFile(filepath.Join(bin, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := i.install(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no such version") {
		t.Errorf("error %v, want the client's", err)
	}
	calls, err := os.ReadFile(filepath.Join(bin, "calls"))
	if err != nil || strings.Count(string(calls), "\n") != 2 ||
		!strings.Contains(string(calls), "--ignore-scripts x@2.0.0") {
		t.Errorf("calls %q, %v; want two", calls, err)
	}
}
