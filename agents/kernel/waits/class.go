package waits

import (
	"fmt"
	"strings"
)

// Class is the reason for an interval of a thread's time. The values are defined in bpf/wait.bpf.c.
type Class uint32

// The classes. [OnCPU], [Preempted] and [RunQueue] are times when the thread can run. In all other classes it waits
// for something.
const (
	OnCPU     Class = iota
	Preempted       // the kernel gave the CPU to another thread
	RunQueue        // runnable after a wake-up, its creation or a yield, but not on a CPU yet
	File            // regular files, folders, block devices, and calls that take paths
	Sync            // fsync and its relatives
	Fault           // page faults
	Net             // sockets of IP and vsock
	DNS             // sockets connected to port 53
	Unix            // sockets of the same host
	Pipe            // pipes and eventfds
	Epoll
	Poll  // poll and select
	Futex // locks and conditions, including file locks and semaphores
	Sleep // sleeps, timers, and waits for signals
	IOUring
	Child // processes that were started
	TTY
	Other
	NumClasses = iota
)

var classNames = [NumClasses]string{
	"oncpu", "preempted", "runqueue", "file", "sync", "fault", "net", "dns", "unix", "pipe", "epoll", "poll", "futex",
	"sleep", "iouring", "child", "tty", "other",
}

// Valid reports whether c is one of the classes.
func (c Class) Valid() bool { return c < NumClasses }

// String returns the name of the class, as used in JSON and attributes.
func (c Class) String() string {
	if !c.Valid() {
		return fmt.Sprintf("class %d", uint32(c))
	}
	return classNames[c]
}

// ParseClass returns the class with the given name, or an error if the name is unknown.
func ParseClass(name string) (Class, error) {
	for c, n := range classNames {
		if n == name {
			return Class(c), nil
		}
	}
	return 0, fmt.Errorf("unknown class %q; the classes are %s", name, strings.Join(classNames[:], ", "))
}

// Set is a set of classes, with one bit per class.
type Set uint32

// All contains all classes.
const All Set = 1<<NumClasses - 1

// With returns s with c added.
func (s Set) With(c Class) Set { return s | 1<<c }

// Has reports whether s contains c.
func (s Set) Has(c Class) bool { return s&(1<<c) != 0 }

// Group is a group of classes with the same kind of remedy.
type Group uint32

// The groups.
const (
	Running Group = iota
	WaitsForCPU
	Files
	Network
	OtherIO
	Locks
	Sleeping
	Polling
	Rest
	NumGroups = iota
)

var groupNames = [NumGroups]string{
	"on CPU",
	"waiting for a CPU", "files and pages", "network", "other I/O", "locks", "sleep and children", "polling", "other",
}

// String returns the name of the group for people.
func (g Group) String() string { return groupNames[g] }

// Group returns the group of a class.
func (c Class) Group() Group {
	switch c {
	case OnCPU:
		return Running
	case Preempted, RunQueue:
		return WaitsForCPU
	case File, Sync, Fault:
		return Files
	case Net, DNS:
		return Network
	case Unix, Pipe, IOUring, TTY:
		return OtherIO
	case Futex:
		return Locks
	case Sleep, Child:
		return Sleeping
	case Epoll, Poll:
		return Polling
	case Other:
	}
	return Rest
}

// Thresholds holds, by class, the duration in ns from which an interval counts as long. A threshold of 0 means that no
// interval counts as long.
type Thresholds [NumClasses]uint64
