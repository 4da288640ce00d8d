package detect

import (
	"strings"

	"github.com/sibyl-trace/sibyl/trace"
)

// waitPrefix begins the names of the spans of kernel waits, before the class of the wait.
const waitPrefix = "wait "

// waiting describes the classes of waits as predicates.
var waiting = map[string]string{
	"preempted": waitingForCPU,
	"runqueue":  waitingForCPU,
	"file":      "waiting for the disk (reading or writing files)",
	"sync":      "waiting for the disk (fsync)",
	"fault":     "waiting for memory pages (page faults)",
	"net":       "waiting for the network",
	"dns":       "waiting for DNS answers",
	"unix":      "waiting for another process of the host (Unix socket)",
	"pipe":      "waiting for a pipe",
	"epoll":     "waiting for one of many connections (epoll)",
	"poll":      "waiting for one of several connections (poll)",
	"futex":     "waiting for a lock",
	"sleep":     "sleeping (a pause in its own code)",
	"iouring":   "waiting for I/O (io_uring)",
	"child":     "waiting for a process that it started",
	"tty":       "waiting for a terminal",
	"other":     "waiting for something else in the kernel",
}

// waitingForCPU describes two classes, which call for the same remedy: a thread that other threads interrupt, and one
// that they keep from its turn.
const waitingForCPU = "waiting for a CPU"

// WaitClass returns the class of the kernel waits whose spans have an operation; "" if it is none of theirs. By
// convention only tracepoints of layer kernel have such names.
func WaitClass(table *trace.Table, op trace.Op) string {
	o := table.Operation(op)
	class, ok := strings.CutPrefix(table.Text(o.Name), waitPrefix)
	if !ok || o.Kind != trace.Internal || waiting[class] == "" {
		return ""
	}
	return class
}

// WaitsForCPU reports whether threads that wait in this way could run.
func WaitsForCPU(class string) bool { return waiting[class] == waitingForCPU }

// IsCommonWait reports whether waits of a class often make requests slow, as far as the kernel sees threads wait: for a
// CPU, a lock, the disk, the network, DNS, or a pause of the program.
func IsCommonWait(class string) bool {
	switch class {
	case "preempted", "runqueue", "futex", "file", "sync", "net", "dns", "sleep":
		return true
	}
	return false
}

// Waiting describes the waits of a class as a predicate: "waiting for the disk (fsync)".
func Waiting(class string) string {
	if text := waiting[class]; text != "" {
		return text
	}
	return "waiting in the kernel"
}
