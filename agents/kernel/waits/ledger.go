package waits

import (
	"math/bits"
)

// Row is the change of a sum between two readings. It includes the current interval up to the reading.
type Row struct {
	Key
	Comm      Comm
	Count     uint64 // includes an interval of an earlier report that continues; see [Ledger.Begin]
	TotalNs   uint64
	MaxNs     uint64 // an upper bound, or exact for the longest interval since the start of the observation
	RunqNs    uint64
	MaxRunqNs uint64
	Over      uint64
	RunqOver  uint64
	Buckets   [Buckets]uint64 // without the current interval
}

// Reading is a reading of the state of threads and of the kernel's sums. Open was read before Sums.
type Reading struct {
	Open []Open
	Sums map[Key]Sum
}

// Ledger computes the changes between successive readings of growing sums. It is not safe for concurrent use.
type Ledger struct {
	thresholds Thresholds
	classes    Set
	state      map[Key]standing
	report     int // number of reports started
}

// standing is the value of a sum, including the current interval, as of the last reading.
type standing struct {
	Row
	seen   bool // in the last reading of sums
	open   bool // it has a current interval
	report int  // report that already counts this interval
}

// NewLedger returns a Ledger without readings. classes are the classes whose sums the kernel keeps. Ledger ignores the
// current intervals of other classes, which the kernel reports, too.
func NewLedger(t Thresholds, classes Set) *Ledger {
	return &Ledger{thresholds: t, classes: classes, state: make(map[Key]standing)}
}

// Begin starts a report. An interval that continues counts again, because part of it lies in the new report.
func (l *Ledger) Begin() { l.report++ }

// Update returns the changes since the previous reading, and the keys of threads that have ended since. The sums of
// these threads are final and may be deleted. changes and ended are in no particular order.
func (l *Ledger) Update(r Reading) (changes []Row, ended []Key) {
	alive, open := make(map[Thread]Comm, len(r.Open)), make(map[Key]bool, len(r.Open))
	now := make(map[Key]Row, len(r.Sums))
	for k, s := range r.Sums {
		now[k] = rowOf(k, s)
	}
	for _, o := range r.Open {
		alive[Thread{o.TGID, o.TID}] = o.Comm
		if k, ok := l.addOpen(now, o, r.Sums); ok {
			open[k] = true
		}
	}
	for k, row := range now {
		before := l.state[k]
		_, seen := r.Sums[k]
		comm, lives := alive[k.Thread()]
		if lives {
			row.Comm = comm
		}
		carried := uint64(0)
		if before.open && before.report != l.report {
			carried = 1
		}
		changes = appendChange(changes, row, before.Row, carried)
		// A thread has ended if the previous reading has its sums, but it no longer existed before this reading. If
		// only this reading has its sums, it may have started after the threads were listed.
		if before.seen && !lives {
			ended = append(ended, k)
			delete(l.state, k)
			continue
		}
		l.state[k] = standing{row, seen, open[k], l.report}
	}
	for k := range l.state {
		if _, ok := now[k]; !ok {
			delete(l.state, k)
		}
	}
	return changes, ended
}

// addOpen adds the current interval of a thread to its row, unless the sums, which are read later, already include the
// interval. It returns the key of the row, and whether it has added the interval.
func (l *Ledger) addOpen(now map[Key]Row, o Open, sums map[Key]Sum) (Key, bool) {
	k := Key{o.TGID, o.TID, o.Syscall, o.Class}
	if sums[k].Last > o.Now || o.Since == 0 || !l.classes.Has(o.Class) {
		return k, false
	}
	row, ok := now[k]
	if !ok {
		row = Row{Key: k}
	}
	wait, runq := o.Now-o.Since, uint64(0)
	if o.Woken > o.Since {
		wait, runq = o.Woken-o.Since, o.Now-o.Woken
	}
	row.Count++
	row.TotalNs += wait
	row.MaxNs = max(row.MaxNs, wait)
	row.RunqNs += runq
	row.MaxRunqNs = max(row.MaxRunqNs, runq)
	row.Over += exceeds(wait, l.thresholds[o.Class])
	row.RunqOver += exceeds(runq, l.thresholds[RunQueue])
	now[k] = row
	return k, true
}

func exceeds(ns, threshold uint64) uint64 {
	if threshold != 0 && ns >= threshold {
		return 1
	}
	return 0
}

func rowOf(k Key, s Sum) Row {
	row := Row{
		Key:       k,
		Comm:      s.Comm,
		Count:     s.Count,
		TotalNs:   s.TotalNs,
		MaxNs:     s.MaxNs,
		RunqNs:    s.RunqNs,
		MaxRunqNs: s.MaxRunqNs,
		Over:      uint64(s.Over),
		RunqOver:  uint64(s.RunqOver),
	}
	for i, n := range s.Buckets {
		row.Buckets[i] = uint64(n)
	}
	return row
}

// appendChange appends the difference between row and before to changes, unless nothing has changed. carried is the
// number of intervals continued from earlier reports.
func appendChange(changes []Row, row, before Row, carried uint64) []Row {
	d := row
	d.Count = difference(row.Count, before.Count) + carried
	d.TotalNs = difference(row.TotalNs, before.TotalNs)
	d.RunqNs = difference(row.RunqNs, before.RunqNs)
	d.Over = difference(row.Over, before.Over)
	d.RunqOver = difference(row.RunqOver, before.RunqOver)
	for i := range d.Buckets {
		d.Buckets[i] = difference(row.Buckets[i], before.Buckets[i])
	}
	if d.Count == 0 && d.TotalNs == 0 && d.RunqNs == 0 {
		return changes
	}
	if row.MaxNs == before.MaxNs {
		d.MaxNs = min(row.MaxNs, longest(d.Buckets, row.MaxNs))
	}
	if row.MaxRunqNs == before.MaxRunqNs {
		d.MaxRunqNs = min(row.MaxRunqNs, d.RunqNs)
	}
	return append(changes, d)
}

// longest returns an upper bound on the durations of the intervals in buckets. It returns `otherwise` if there are no
// intervals, or if some are in the last bucket, which is unbounded.
func longest(buckets [Buckets]uint64, otherwise uint64) uint64 {
	for i := Buckets - 2; i >= 0; i-- {
		if buckets[i+1] > 0 {
			return otherwise
		}
		if buckets[i] > 0 {
			return BucketBound(i)
		}
	}
	return otherwise
}

// difference returns now − before, or 0 if that is negative, because the sum has been deleted and has started again.
func difference(now, before uint64) uint64 {
	d, borrow := bits.Sub64(now, before, 0)
	if borrow != 0 {
		return 0
	}
	return d
}
