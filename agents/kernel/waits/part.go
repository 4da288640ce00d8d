package waits

// Part is a part of an interval that has a single reason: a class and a system call.
type Part struct {
	Class      Class
	Syscall    int32
	Start, End uint64 // ns of the monotonic clock
	RunqNs     uint64 // time on the run queue after End
}

// Parts returns the parts of the interval whose classes are in wanted, in order: the wait, and the time from the
// wake-up to the CPU as a part of class [RunQueue]. The parts do not overlap. Parts shorter than their threshold, or
// without a threshold, are omitted.
func (e *Event) Parts(wanted Set, t Thresholds) []Part {
	var parts []Part
	woken := e.End - min(e.RunqNs, e.End)
	if wanted.Has(e.Class) && exceeds(e.WaitNs, t[e.Class]) > 0 {
		parts = append(parts, Part{
			Class:   e.Class,
			Syscall: e.Syscall,
			Start:   woken - min(e.WaitNs, woken),
			End:     woken,
			RunqNs:  e.RunqNs,
		})
	}
	if wanted.Has(RunQueue) && exceeds(e.RunqNs, t[RunQueue]) > 0 {
		parts = append(parts, Part{Class: RunQueue, Syscall: e.Syscall, Start: woken, End: e.End})
	}
	return parts
}

// toldAsWellBits is the number of bits by which a threshold is shifted right for the second part of an event within a
// span, as in bpf/wait.bpf.c.
const toldAsWellBits = 3

// InSpans returns the thresholds for the parts of an event within a span. If one part exceeds its threshold, the event
// includes the other part, too, unless it is much shorter.
func (t Thresholds) InSpans() Thresholds {
	for class, ns := range t {
		if ns > 0 {
			t[class] = max(ns>>toldAsWellBits, 1)
		}
	}
	return t
}

// Scope is the instrumentation scope of the spans of waits.
const Scope = "github.com/sibyl-trace/sibyl/agents/kernel"

// SpanName returns the name of the spans of a class.
func SpanName(c Class) string { return "wait " + c.String() }

// TracepointInfix separates the service and the class in the IDs of tracepoints.
const TracepointInfix = "/kernel/"

// TracepointID returns the ID of the tracepoint of a class in a service. The spans of the tracepoint carry it.
func TracepointID(service string, c Class) string { return service + TracepointInfix + c.String() }
