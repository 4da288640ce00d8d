package join

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Joiner attributes waits to the spans and services of processes. It is not safe for concurrent use.
type Joiner struct {
	// Hurried delays the reading of processes whose environment does not name a service. Set it if there are many
	// processes and most of them end soon.
	Hurried bool
	// Inspector reads the processes. Its Patience is the approximate total time that all methods of the Joiner wait.
	Inspector untrusted.Inspector

	proc      string
	service   string // service of processes that do not name one; may be empty
	host      string
	processes map[uint32]*process
	counts    waits.Joins
}

// process caches the service and the context of a running process.
type process struct {
	identity untrusted.Identity
	service  *Service // nil if unknown
	reads    int      // number of readings of the service
	pause    int      // calls of [Joiner.Service] until the next reading
	context  Context
	reason   error // why there is no context
	searches int   // for the context
	rest     int   // calls of [Joiner.Context] until the next search
	linked   bool  // the context can only be in a shared library
	ended    bool
	answer   *untrusted.Answer[func(*process)] // of the current inspection; may be nil
}

// longestPause is the maximum number of calls of [Joiner.Service] between two readings of a process's service. The
// readings are repeated because an SDK publishes the service some time after the process has started.
const longestPause = 128

// NewJoiner returns a Joiner for the processes in the proc file system mounted at proc. If service is not empty, the
// Joiner uses it for processes that do not name their service.
func NewJoiner(proc, service, host string) *Joiner {
	return &Joiner{proc: proc, service: service, host: host, processes: make(map[uint32]*process)}
}

// Service returns the service of a process, or nil if the process has ended, does not name its service, or could not be
// inspected in time. Call Service at regular intervals, because the service may change. The pointer stays the same
// while the service does not change.
func (j *Joiner) Service(pid uint32) *Service {
	if p := j.processes[pid]; p != nil && p.service == nil && p.answer == nil && p.pause > 0 {
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
	quick := j.Hurried && p.reads == 0
	proc, name, host := j.proc, j.service, j.host
	asked := j.ask(p, func() func(*process) {
		s, err := readService(proc, pid, name, host, quick)
		return func(p *process) {
			p.ended = errors.Is(err, fs.ErrNotExist)
			if err == nil && (s == nil || p.service == nil || !slices.Equal(s.Attributes, p.service.Attributes)) {
				p.service = s
			}
		}
	})
	if p.ended {
		delete(j.processes, pid)
		return nil
	}
	if asked {
		p.pause = min(1<<min(2*p.reads, 16), longestPause) - 1
		p.reads++
	}
	return p.service
}

// ask starts an inspection of a process, unless one is still in progress, and reports whether it did. The answer is
// applied to p at once if it comes soon, or otherwise at the next request for the process.
func (j *Joiner) ask(p *process, inspection func() func(*process)) bool {
	if p.answer != nil {
		return false
	}
	p.answer = untrusted.Inspect(&j.Inspector, inspection)
	begun := p.answer != nil
	p.settle()
	return begun
}

// settle applies the answer of the current inspection to p, if it has arrived.
func (p *process) settle() {
	if p.answer == nil {
		return
	}
	if change, ok := p.answer.Take(); ok {
		p.answer = nil
		change(p)
	}
}

// Context returns the location of the spans of a process's threads. err is the reason why the waits of the process
// can't be joined: either the location or the service is unknown. first reports whether the first search has ended in
// this call.
func (j *Joiner) Context(pid uint32) (_ Context, first bool, err error) {
	p, err := j.process(pid)
	if err != nil {
		return Context{}, false, err
	}
	first = j.search(pid, p)
	switch {
	case p.reason != nil:
		return Context{}, first, p.reason
	case p.context == Context{}:
		return Context{}, false, errNoAnswer
	case p.service == nil:
		return p.context, first, errNoService
	}
	return p.context, first, nil
}

// search searches for the context of a process. It repeats the search at growing intervals, because a library may be
// loaded late. It reports whether this call has yielded the first result.
func (j *Joiner) search(pid uint32, p *process) (first bool) {
	unknown := p.reason == nil && p.context == Context{}
	if p.searches > 0 && (p.reason == nil || p.rest > 0) {
		p.rest--
	} else {
		folder, linked, before := j.path(pid, ""), p.linked, p.reason
		asked := j.ask(p, func() func(*process) {
			c, linked, err := contextOf(folder, linked, before)
			return func(p *process) { p.context, p.linked, p.reason = c, linked, err }
		})
		if asked {
			p.rest = min(1<<min(2*p.searches, 16), longestPause) - 1
			p.searches++
		}
	}
	return unknown && (p.reason != nil || p.context != Context{})
}

// contextOf returns the location of the spans of a process's threads. folder is the process's folder in the proc file
// system. before is the reason why the previous search failed, or nil if this is the first search. linked means that
// the context can only be in a shared library.
func contextOf(folder string, linked bool, before error) (c Context, _ bool, err error) {
	if err = before; err == nil {
		c, err = findContext(filepath.Join(folder, "exe"))
		linked = errors.Is(err, errNoRecord)
	}
	if linked {
		c, err = libraryContext(folder)
	}
	if err != nil {
		if table, tableErr := tableContext(folder); tableErr == nil {
			c, err = table, nil
		}
	}
	return c, linked, err
}

var errNoService = errors.New("the process does not name its service: set OTEL_SERVICE_NAME in its environment, or " +
	"use --service")

var errNoAnswer = errors.New("the memory and files of the process could not be read yet")

// process returns the process with ID pid, or an error if it isn't running. It returns a new process if the ID now
// belongs to another process or program.
func (j *Joiner) process(pid uint32) (*process, error) {
	id, err := untrusted.Identify(j.proc, pid)
	if err != nil {
		delete(j.processes, pid)
		return nil, err
	}
	p := j.processes[pid]
	if p == nil || p.identity != id {
		p = &process{identity: id}
		j.processes[pid] = p
	}
	p.settle()
	return p, nil
}

// Program returns the path of the program that a process runs, or "" if the process is unknown.
func (j *Joiner) Program(pid uint32) string {
	if p := j.processes[pid]; p != nil {
		return p.identity.Program
	}
	return ""
}

// Forget forgets a process that has ended.
func (j *Joiner) Forget(pid uint32) { delete(j.processes, pid) }

// Join returns e with its span and its service. If either is unknown, Join counts the reason and returns false.
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
	// The start of a process counts since boot, but the times of events exclude suspensions of the machine. After a
	// suspension, no wait seems to be older than its process.
	case e.End-e.WaitNs-e.RunqNs+untrusted.StartPrecisionNs < p.identity.StartNs:
		return nil, waits.MissingEnded
	case p.service == nil:
		return nil, waits.MissingNoService
	}
	return p.service, 0
}

func (j *Joiner) path(pid uint32, name string) string {
	return filepath.Join(j.proc, strconv.FormatUint(uint64(pid), 10), name)
}
