package waits

import (
	"cmp"
	"slices"
	"strings"
)

// Named is a part of the time of a class for which stacks tell what the threads waited for.
type Named struct {
	Class Class
	Name  string
	Ns    uint64
	Idle  bool // the threads waited for work
}

// waitNames lists functions that tell what their callers wait for, where the system call only says epoll or futex. The
// first one that a stack contains counts. Functions of C++ are mangled, so a part of a name is enough.
var waitNames = []struct {
	function, name string
	idle           bool
}{
	{function: "XactLockTableWait", name: "a row lock"}, // PostgreSQL
	{function: "LockTuple", name: "a row lock"},
	{function: "ProcSleep", name: "a lock of a table or a transaction"},
	{function: "LWLockAcquire", name: "a lock inside the database (LWLock)"},
	{function: "ProcArrayGroupClearXid", name: "a lock inside the database (LWLock)"},
	{function: "secure_read", name: "the next query", idle: true},
	{function: "WalWriterMain", name: "work (background process)", idle: true},
	{function: "BackgroundWriterMain", name: "work (background process)", idle: true},
	{function: "CheckpointerMain", name: "work (background process)", idle: true},
	{function: "AutoVacLauncherMain", name: "work (background process)", idle: true},
	{function: "take_gil", name: "Python's interpreter lock (GIL)"},
	{function: "PyEval_RestoreThread", name: "Python's interpreter lock (GIL)"},
	{function: "ObjectMonitor5enter", name: "a monitor of Java (synchronized)"},
	{function: "AbstractQueuedSynchronizer.acquire", name: "a lock of java.util.concurrent"},
	{function: "Unsafe_Park", name: "work (parked)", idle: true},
	{function: "runtime.mPark", name: "a goroutine to run", idle: true},
	{function: "runtime.stopm", name: "a goroutine to run", idle: true},
	{function: "runtime.findRunnable", name: "a goroutine to run", idle: true},
	{function: "runtime.sysmon", name: "its next turn (Go's monitor)", idle: true},
}

// nameless reports whether the system calls of class c don't tell what a thread waits for.
func nameless(c Class) bool { return c == Epoll || c == Poll || c == Futex || c == Sleep }

// named divides the times in totals by what the stacks of the given processes tell. Stacks are samples, so their times
// stand for the whole class.
func (r *Report) named(totals *Totals, of map[uint32]bool) []Named {
	var sampled [NumClasses]uint64
	var parts []Named
	for i := range r.Stacks {
		s := &r.Stacks[i]
		if !of[s.PID] || !nameless(s.Class) || len(s.Frames) == 0 {
			continue
		}
		sampled[s.Class] += s.TotalNs
		part, ok := nameOf(s)
		if !ok {
			continue
		}
		at := slices.IndexFunc(parts, func(n Named) bool { return n.Class == part.Class && n.Name == part.Name })
		if at < 0 {
			parts = append(parts, part)
			continue
		}
		parts[at].Ns += part.Ns
	}
	for i := range parts {
		n := &parts[i]
		n.Ns = uint64(float64(n.Ns) / float64(max(sampled[n.Class], 1)) * float64(totals[n.Class].TotalNs))
	}
	slices.SortStableFunc(parts, func(a, b Named) int { return cmp.Compare(b.Ns, a.Ns) })
	return parts
}

func nameOf(s *Stack) (Named, bool) {
	for _, w := range waitNames {
		if slices.ContainsFunc(s.Frames, func(f string) bool { return strings.Contains(f, w.function) }) {
			return Named{s.Class, w.name, s.TotalNs, w.idle}, true
		}
	}
	return Named{}, false
}
