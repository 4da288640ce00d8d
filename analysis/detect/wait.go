package detect

import (
	"strings"

	"github.com/sibyl-trace/sibyl/trace"
)

// waitPrefix is the prefix of the names of kernel wait spans. The class of the wait follows.
const waitPrefix = "wait "

// waiting holds a predicate that describes each class of waits.
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

// waitingForCPU describes both preempted (another thread took the CPU) and runqueue (the thread could run but was not
// yet scheduled), because the remedy is the same.
const waitingForCPU = "waiting for a CPU"

// WaitClass returns the class of kernel waits whose spans have operation op, or "" if op is not a kernel wait. By
// convention only tracepoints of the kernel layer have such names.
func WaitClass(table *trace.Table, op trace.Op) string {
	o := table.Operation(op)
	class, ok := strings.CutPrefix(table.Text(o.Name), waitPrefix)
	if !ok || o.Kind != trace.Internal || waiting[class] == "" {
		return ""
	}
	return class
}

// WaitsForCPU reports whether a thread in a wait of this class could have run, had there been a free CPU.
func WaitsForCPU(class string) bool { return waiting[class] == waitingForCPU }

// IsCommonWait reports whether waits of class are a common cause of slow requests: waits for a CPU, a lock, the disk,
// the network or DNS, or sleeps.
func IsCommonWait(class string) bool {
	switch class {
	case "preempted", "runqueue", "futex", "file", "sync", "net", "dns", "sleep":
		return true
	}
	return false
}

// Waiting describes the waits of class as a predicate: "waiting for the disk (fsync)".
func Waiting(class string) string {
	if text := waiting[class]; text != "" {
		return text
	}
	return "waiting in the kernel"
}
