package join

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Joiner knows the processes whose waits it joins. It is not safe for concurrent use.
type Joiner struct {
	// Hurried has a process that does not name its service in its environment read later than at first sight. For
	// callers with many processes, most of which soon end.
	Hurried bool

	proc      string
	service   string // of processes that do not tell theirs; "": unknown
	host      string
	processes map[uint32]*process
	counts    waits.Joins
}

// process is a running process.
type process struct {
	identity identity
	service  *Service // nil: unknown
	reads    int      // of the service
	pause    int      // calls of [Joiner.Service] until the next one
	context  Context
	reason   error // for which there is no context
	searches int   // for the context
	rest     int   // calls of [Joiner.Context] until the next one
	linked   bool  // whether only a shared library can have it
}

// longestPause is the longest time, in calls of [Joiner.Service], between two readings of the service of a process: an
// SDK publishes it some time after the start.
const longestPause = 128

// identity tells programs apart that use a process ID one after the other.
type identity struct {
	startNs     uint64 // since boot
	device, ino uint64 // of the program
}

// NewJoiner returns a Joiner for the processes below proc. If service is not empty, it is the name of the service of
// processes that do not tell theirs.
func NewJoiner(proc, service, host string) *Joiner {
	return &Joiner{proc: proc, service: service, host: host, processes: make(map[uint32]*process)}
}

// Service returns the service of a process; nil if the process has ended, or names none. To be called at regular
// intervals: it reads the service again. One that does not change stays the same pointer.
func (j *Joiner) Service(pid uint32) *Service {
	if p := j.processes[pid]; p != nil && p.service == nil && p.pause > 0 {
		p.pause--
		return nil
	}
	p, err := j.process(pid)
	if err != nil {
		return nil
	}
	if p.pause > 0 {
		p.pause--
		return p.service
	}
	p.pause = min(1<<min(2*p.reads, 16), longestPause) - 1
	p.reads++
	s, err := readService(j.proc, pid, j.service, j.host, j.Hurried && p.reads == 1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(j.processes, pid)
		return nil
	case err == nil && (s == nil || p.service == nil || !slices.Equal(s.Attributes, p.service.Attributes)):
		p.service = s
	}
	return p.service
}

// Context returns where a process keeps the spans of its threads. If it does not, as far as is known, err is the
// reason, and first reports whether it has not been sought before.
func (j *Joiner) Context(pid uint32) (_ Context, first bool, err error) {
	p, err := j.process(pid)
	if err != nil {
		return Context{}, false, err
	}
	first = p.searches == 0
	j.search(pid, p)
	if p.reason == nil && p.service == nil {
		return p.context, first, errNoService
	}
	return p.context, first, p.reason
}

// search searches for the context of a process, again at growing intervals, since a library may be loaded late.
func (j *Joiner) search(pid uint32, p *process) {
	if p.searches > 0 && (p.reason == nil || p.rest > 0) {
		p.rest--
		return
	}
	p.rest = min(1<<min(2*p.searches, 16), longestPause) - 1
	if p.searches++; p.searches == 1 {
		p.context, p.reason = findContext(j.path(pid, "exe"))
		p.linked = errors.Is(p.reason, errNoRecord)
	}
	if p.linked {
		p.context, p.reason = libraryContext(j.path(pid, ""))
	}
	if p.reason != nil {
		if c, err := tableContext(j.path(pid, "")); err == nil {
			p.context, p.reason = c, nil
		}
	}
}

var errNoService = errors.New("the process does not tell the name of its service: set OTEL_SERVICE_NAME in its environment, or give --service")

// process returns a process, a new one if another program has its ID by now.
func (j *Joiner) process(pid uint32) (*process, error) {
	id, err := j.identify(pid)
	if err != nil {
		delete(j.processes, pid)
		return nil, err
	}
	p := j.processes[pid]
	if p == nil || p.identity != id {
		p = &process{identity: id}
		j.processes[pid] = p
	}
	return p, nil
}

// Forget forgets a process that has ended.
func (j *Joiner) Forget(pid uint32) { delete(j.processes, pid) }

// Join returns the span of an event; false and counts the reason if there is none.
func (j *Joiner) Join(e *waits.Event) (Wait, bool) {
	w := Wait{Event: *e, Quality: Exact}
	var missing waits.Reason
	var ok bool
	if w.Trace, w.Parent, missing, ok = spanOf(e); ok {
		w.Service, missing = j.serviceOf(e)
	}
	if w.Service == nil {
		j.counts.Missing[missing]++
		return Wait{}, false
	}
	j.counts.Exact++
	return w, true
}

// Joins returns the counts so far.
func (j *Joiner) Joins() waits.Joins { return j.counts }

func (j *Joiner) serviceOf(e *waits.Event) (*Service, waits.Reason) {
	p := j.processes[e.TGID]
	switch {
	case p == nil:
		return nil, waits.MissingEnded
	case e.End-e.WaitNs-e.RunqNs+startPrecisionNs < p.identity.startNs:
		return nil, waits.MissingEnded
	case p.service == nil:
		return nil, waits.MissingNoService
	}
	return p.service, 0
}

// startPrecisionNs is the unit in which the kernel tells the start of a process. It counts the time since boot, events
// that without suspensions of the machine: after one, no wait seems to be older than its process.
const startPrecisionNs = 10_000_000

func (j *Joiner) path(pid uint32, name string) string {
	return filepath.Join(j.proc, strconv.FormatUint(uint64(pid), 10), name)
}

func (j *Joiner) identify(pid uint32) (identity, error) {
	text, err := os.ReadFile(j.path(pid, "stat"))
	if err != nil {
		return identity{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}
	const startTime = 22 - 3 // the fields after the name begin with the third
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	fields := strings.Fields(rest)
	if len(fields) <= startTime {
		return identity{}, fmt.Errorf("read the start of process %d: %q", pid, text)
	}
	ticks, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return identity{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}
	id := identity{startNs: ticks * startPrecisionNs}
	if info, err := os.Stat(j.path(pid, "exe")); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			id.device, id.ino = uint64(s.Dev), s.Ino //nolint:unconvert // other systems have other types
		}
	}
	return id, nil
}
