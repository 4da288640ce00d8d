package waits

// Part is a part of an interval that has one reason.
type Part struct {
	Class      Class
	Syscall    int32
	Start, End uint64 // ns of the monotonic clock
	RunqNs     uint64 // after End, on the run queue
}

// Parts returns the parts of the interval whose classes are in wanted, in order: the wait, and the time from the
// wake-up to the CPU as one of class [RunQueue]. They do not overlap. Parts shorter than the thresholds are left out.
func (e *Event) Parts(wanted Set, t Thresholds) []Part {
	var parts []Part
	woken := e.End - min(e.RunqNs, e.End)
	if wanted.Has(e.Class) && e.WaitNs > 0 && e.WaitNs >= t[e.Class] {
		parts = append(parts, Part{Class: e.Class, Syscall: e.Syscall, Start: woken - min(e.WaitNs, woken), End: woken, RunqNs: e.RunqNs})
	}
	if wanted.Has(RunQueue) && e.RunqNs > 0 && e.RunqNs >= t[RunQueue] {
		parts = append(parts, Part{Class: RunQueue, Syscall: e.Syscall, Start: woken, End: e.End})
	}
	return parts
}
