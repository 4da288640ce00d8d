package estate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is the time between SIGTERM and SIGKILL.
const stopTimeout = 5 * time.Second

// command describes a process.
type command struct {
	name string // of the log file
	path string
	args []string
	dir  string
	env  []string
	user *syscall.Credential // nil for the user of this process
}

// process is a running program in its own process group.
type process struct {
	command
	cmd    *exec.Cmd
	log    string        // path of the file with standard output and standard error
	exited chan struct{} // closed when the process has exited
	state  *os.ProcessState
	before int64 // size of the log when it started
}

// group starts processes and stops all of them. It is safe for concurrent use.
type group struct {
	logs   string // folder
	reaper *reaper

	mu      sync.Mutex // guards running
	running []*process // in order of their start
}

// start starts a process.
func (g *group) start(c command) (*process, error) {
	p := &process{command: c, log: filepath.Join(g.logs, c.name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	if info, err := log.Stat(); err == nil {
		p.before = info.Size() // an earlier process of the name has written it
	}
	defer func() { _ = log.Close() }()      // the process has a descriptor of its own
	p.cmd = exec.Command(c.path, c.args...) //nolint:noctx // group.stop and the reaper end it
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = c.dir, c.env, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.user} // Ctrl-C reaches only this process
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	g.reaper.watch(p.pid())
	g.running = append(g.running, p)
	go func() { // ends with the process
		defer close(p.exited)
		p.state, _ = p.cmd.Process.Wait() // without a state the process counts as failed
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive reports whether the process is running.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// exitError returns an error for an unexpected exit.
func (p *process) exitError() error {
	return fmt.Errorf("%s exited: %s: %s", p.name, p.state, p.logTail())
}

// logTail returns the last lines of the log.
func (p *process) logTail() string {
	out, _ := os.ReadFile(p.log) // without a log there is no detail
	return tail(out)
}

// wrote returns a function that reports whether the process has written text to its log.
func (p *process) wrote(text string) func(context.Context) bool {
	return func(context.Context) bool {
		out, _ := os.ReadFile(p.log) // without a log it is not ready
		return bytes.Contains(out[min(int(p.before), len(out)):], []byte(text))
	}
}

// signal sends a signal to the process group, and to all descendants, because some have groups of their own.
func (p *process) signal(s syscall.Signal) {
	if p.alive() {
		signalTree(p.pid(), s)
	}
}

// signalTree signals a process group and all descendants of its leader. Processes that have just exited are skipped.
func signalTree(pid int, s syscall.Signal) {
	all := descendants(pid)
	_ = syscall.Kill(-pid, s)
	for _, d := range all {
		_ = syscall.Kill(d, s)
	}
}

// descendants returns the children of a process, their children and so on, without the process itself.
func descendants(pid int) []int {
	children := make(map[int][]int)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has exited
		}
		head, rest, found := cutLast(string(data), ") ")
		fields := strings.Fields(rest)
		if !found || len(fields) < 2 {
			continue
		}
		number, _, _ := strings.Cut(head, " ")
		child, err1 := strconv.Atoi(number)
		parent, err2 := strconv.Atoi(fields[1])
		if err1 == nil && err2 == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next[0])
		next = append(next[1:], children[next[0]]...)
	}
	return all
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// stop terminates the process and its descendants and waits for it. It kills them after the timeout, or at once if the
// timeout is 0.
func (g *group) stop(p *process, timeout time.Duration) {
	tree := append(descendants(p.pid()), p.pid())
	p.signal(syscall.SIGCONT)
	if timeout > 0 {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(timeout):
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL) // members that outlived the leader
	for _, pid := range tree {
		if parentOf(pid) == 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaper.forget(p.pid())
	g.running = slices.DeleteFunc(g.running, func(q *process) bool { return q == p })
}

// parentOf returns the parent of a process, or 0 if the process has exited.
func parentOf(pid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // without it the process has exited
	_, rest, _ := cutLast(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1]) // the kernel writes a number
	return parent
}

// close stops all processes: the service last, so that the others can send their last spans.
func (g *group) close() {
	g.mu.Lock()
	all := slices.Clone(g.running)
	g.mu.Unlock()
	var stopped sync.WaitGroup
	for _, p := range all {
		if p.name != sibylName {
			stopped.Go(func() { g.stop(p, stopTimeout) })
		}
	}
	stopped.Wait()
	for _, p := range all {
		if p.name == sibylName {
			g.stop(p, stopTimeout)
		}
	}
}

// run runs a command to its end. It returns an error unless the command succeeds.
func (g *group) run(ctx context.Context, c command) error {
	p, err := g.start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	g.stop(p, 0)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if p.state == nil || !p.state.Success() {
		return p.exitError()
	}
	return nil
}

// ReaperCommand is the hidden command that calls Reap.
const ReaperCommand = "estate-reaper"

// Reap reads the process groups that another process starts and stops. A line is "+PID" or "-PID". When in ends, even
// because that process was killed, Reap kills the remaining groups and removes dir.
func Reap(in io.Reader, dir string) error {
	groups := make(map[int]bool)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line := lines.Text()
		pid, err := strconv.Atoi(strings.TrimLeft(line, "+-"))
		if err != nil || pid <= 1 {
			return fmt.Errorf("reap: %q is no process group", line)
		}
		if strings.HasPrefix(line, "-") {
			delete(groups, pid)
		} else {
			groups[pid] = true
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(groups)) {
		signalTree(pid, syscall.SIGKILL)
	}
	return removeAll(dir)
}

// removeAll removes a folder. It retries, because processes that are about to exit may still create files.
func removeAll(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// reaper is a process that runs Reap. A nil reaper does nothing.
type reaper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startReaper starts program as a reaper.
func startReaper(program, dir string) (*reaper, error) {
	r := &reaper{cmd: exec.Command(program, ReaperCommand, dir)} //nolint:noctx // it exits with its input
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return r, r.cmd.Start()
}

// watch and forget ignore errors: without the reaper, group.close still stops everything.
func (r *reaper) watch(pid int) {
	if r != nil {
		_, _ = fmt.Fprintf(r.in, "+%d\n", pid)
	}
}

func (r *reaper) forget(pid int) {
	if r != nil {
		_, _ = fmt.Fprintf(r.in, "-%d\n", pid)
	}
}

// close waits until the reaper has removed the folder.
func (r *reaper) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.in.Close(), r.cmd.Wait())
}
