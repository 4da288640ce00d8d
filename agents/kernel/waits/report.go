package waits

import (
	"cmp"
	"time"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Total holds sums over intervals of one class.
type Total struct {
	Count   uint64
	TotalNs uint64
	MaxNs   uint64
	RunqNs  uint64 // run-queue time that followed the intervals; not part of TotalNs
	Over    uint64 // intervals above the threshold
}

// Add adds another sum.
func (t *Total) Add(o Total) {
	t.Count += o.Count
	t.TotalNs += o.TotalNs
	t.MaxNs = max(t.MaxNs, o.MaxNs)
	t.RunqNs += o.RunqNs
	t.Over += o.Over
}

// Totals holds the sums for each class. The sum for [RunQueue] includes the run-queue parts of all other classes.
type Totals [NumClasses]Total

// Ns returns the sum over all classes, that is, the total time that threads were observed.
func (t *Totals) Ns() uint64 {
	var ns uint64
	for i := range t {
		ns += t[i].TotalNs
	}
	return ns
}

func (t *Totals) add(r *Row) {
	t[r.Class].Add(Total{r.Count, r.TotalNs, r.MaxNs, r.RunqNs, r.Over})
	if r.RunqNs > 0 {
		t[RunQueue].Add(Total{Count: max(r.Count, 1), TotalNs: r.RunqNs, MaxNs: r.MaxRunqNs, Over: r.RunqOver})
	}
}

// Call holds sums over the intervals of one class in one system call.
type Call struct {
	Class   Class
	Syscall int32
	Total
	Buckets [Buckets]uint64
}

// ThreadReport holds the time of one thread by class.
type ThreadReport struct {
	TID    uint32 // 0 for all threads beyond the limit of a report
	Comm   string
	Totals Totals
}

// ProcessReport holds the time of one process by class, system call and thread.
type ProcessReport struct {
	PID     uint32
	Comm    string         // name of its first thread
	Totals  Totals         // of all threads
	Calls   []Call         // of all threads; longest first
	Threads []ThreadReport // longest time of work first
}

// Stack is the time represented by one sampled stack.
type Stack struct {
	PID     uint32
	Comm    string
	Class   Class
	Syscall int32
	Frames  []string // innermost first
	Count   uint64
	TotalNs uint64
}

// MaxLongest is the maximum number of individual intervals that a report lists.
const MaxLongest = 32

// Longest is one of the longest intervals above a threshold.
type Longest struct {
	Event
	WaitTooLong bool     // the wait itself is above its threshold
	TurnTooLong bool     // the wait for a CPU is above its threshold
	Frames      []string // innermost first; empty without a stack
}

// TooLongNs returns the time of the parts above their thresholds, in ns.
func (l *Longest) TooLongNs() (ns uint64) {
	if l.WaitTooLong {
		ns += l.WaitNs
	}
	if l.TurnTooLong {
		ns += l.RunqNs
	}
	return ns
}

// Losses holds the numbers of missing records by cause.
type Losses struct {
	Events   uint64 // single waits: the ring buffer was full
	Limited  uint64 // single waits: above the limit for a process; the sums include them
	Sums     uint64 // intervals: the map of sums was full
	Threads  uint64 // switches of threads without memory for their state
	Stacks   uint64 // sampled stacks: their map was full
	Children uint64 // processes: the map of targets was full
	Missed   uint64 // runs of the probes: nested in another run
	Switches uint64 // parts of a thread's time: the kernel did not report that it left a CPU
	Gaps     uint64 // times when the agent was stopped for too long
	// Uncounted are missing events that [MissingKey] does not include. Events and Limited include them.
	Uncounted uint64
	Unseen    uint64 // switches to a CPU that the kernel did not report; replaced by the scheduler's times
}

// Lost returns the number of lost records. It doesn't count limited records, because the limit is intended, or unseen
// switches, because the scheduler's times replace them.
func (l *Losses) Lost() uint64 {
	return l.Events + l.Sums + l.Threads + l.Stacks + l.Children + l.Missed + l.Switches + l.Gaps
}

// Since returns the difference between l and `before`, the losses at an earlier time.
func (l Losses) Since(before Losses) Losses {
	return Losses{
		l.Events - before.Events, l.Limited - before.Limited, l.Sums - before.Sums, l.Threads - before.Threads,
		l.Stacks - before.Stacks, l.Children - before.Children, l.Missed - before.Missed, l.Switches - before.Switches,
		l.Gaps - before.Gaps, l.Uncounted - before.Uncounted, l.Unseen - before.Unseen,
	}
}

// Cost is the cost of the probes.
type Cost struct {
	Hits     uint64  // runs, extrapolated from a part of the time
	NsPerHit float64 // 0 if unknown
	CPUShare float64 // of one CPU
}

// Throttle counts the times at which the CPU limit of a cgroup stopped its threads.
type Throttle struct {
	Cgroup  string
	Periods uint64 // of the limit, in which the cgroup had something to run
	Stopped uint64 // periods in which the limit was reached
	Ns      uint64 // added up over the CPUs
}

// Report accounts for the time of the observed processes during an interval.
type Report struct {
	From      time.Time
	Duration  time.Duration
	Losses    Losses
	Processes []ProcessReport // longest time of work first
	Stacks    []Stack         // longest first
	Longest   []Longest       // longest first
	Cost      Cost
	Throttles []Throttle       // longest first
	Joins     *Joins           // nil if waits are not joined to spans
	Ended     []uint32         // processes selected by ID that have ended, ascending
	Syscalls  map[int32]string // names of the system calls that occur
}

// Reason returns the class and, if it is known, the name of the system call, for people.
func (r *Report) Reason(c Class, syscall int32) string {
	if name := r.Syscalls[syscall]; name != "" && name != c.String() {
		return c.String() + " " + name
	}
	return c.String()
}

// maxThreads limits the threads of one report, so that short-lived threads do not fill the memory. Further threads are
// summed up by process, and further processes in a single ThreadReport.
const maxThreads = 50_000

// Collector adds up changes for a report.
type Collector struct {
	threads map[Thread]*ThreadReport
	calls   map[Key]*Call   // TID is 0
	names   map[uint32]Comm // of processes, by their first thread
}

// NewCollector returns an empty Collector.
func NewCollector() *Collector {
	return &Collector{threads: make(map[Thread]*ThreadReport), calls: make(map[Key]*Call), names: make(map[uint32]Comm)}
}

// Name records the names of processes from threads that are alive, because the first thread of a process may have no
// changes, for example if its class is not wanted.
func (c *Collector) Name(alive []Open) {
	for i := range alive {
		if o := &alive[i]; o.TID == o.TGID && len(c.names) < maxThreads {
			c.names[o.TGID] = o.Comm
		}
	}
}

// Add adds the changes of a [Ledger].
func (c *Collector) Add(changes []Row) {
	for i := range changes {
		r := &changes[i]
		t := c.thread(r.Thread())
		t.Totals.add(r)
		if r.Class == OnCPU || t.Comm == "" {
			t.Comm = r.Comm.String() // for threads that have ended, only this sum has the last name
		}
		c.call(r)
	}
}

// thread returns the sums of a thread, or sums that the threads beyond the limit share.
func (c *Collector) thread(id Thread) *ThreadReport {
	if t, ok := c.threads[id]; ok {
		return t
	}
	if len(c.threads) >= maxThreads {
		id.TID = 0
		if len(c.threads) >= 2*maxThreads {
			id.TGID = 0
		}
		if t, ok := c.threads[id]; ok {
			return t
		}
	}
	t := &ThreadReport{TID: id.TID}
	c.threads[id] = t
	return t
}

func (c *Collector) call(r *Row) {
	k := r.Key
	k.TID = 0
	if len(c.calls) >= maxThreads && c.calls[k] == nil {
		k.TGID = 0
	}
	call, ok := c.calls[k]
	if !ok {
		call = &Call{Class: r.Class, Syscall: r.Syscall}
		c.calls[k] = call
	}
	call.Add(Total{r.Count, r.TotalNs, r.MaxNs, r.RunqNs, r.Over})
	for i, n := range r.Buckets {
		call.Buckets[i] += n
	}
}

// Processes returns the sums of all processes, longest time of work first: idle ones are off the CPU the longest, and
// would hide the others.
func (c *Collector) Processes() []ProcessReport {
	byPID := make(map[uint32]*ProcessReport)
	for id, t := range c.threads {
		p := byPID[id.TGID]
		if p == nil {
			p = &ProcessReport{PID: id.TGID, Comm: c.names[id.TGID].String()}
			byPID[id.TGID] = p
		}
		if id.TID == id.TGID && t.Comm != "" {
			p.Comm = t.Comm
		}
		for class := range t.Totals {
			p.Totals[class].Add(t.Totals[class])
		}
		p.Threads = append(p.Threads, *t)
	}
	for k, call := range c.calls {
		if p := byPID[k.TGID]; p != nil {
			p.Calls = append(p.Calls, *call)
		}
	}
	all := make([]ProcessReport, 0, len(byPID))
	for _, p := range byPID {
		sorting.SliceStable(p.Threads, func(a, b ThreadReport) int {
			return cmp.Or(compareWork(&a.Totals, &b.Totals), cmp.Compare(a.TID, b.TID))
		})
		if p.Comm == "" {
			p.Comm = p.Threads[0].Comm
		}
		sorting.SliceStable(p.Calls, func(a, b Call) int {
			return cmp.Or(cmp.Compare(b.TotalNs, a.TotalNs), cmp.Compare(a.Class, b.Class),
				cmp.Compare(a.Syscall, b.Syscall))
		})
		all = append(all, *p)
	}
	sorting.SliceStable(all, func(a, b ProcessReport) int {
		return cmp.Or(compareWork(&a.Totals, &b.Totals), cmp.Compare(a.PID, b.PID))
	})
	return all
}

func offCPU(t *Totals) uint64 { return t.Ns() - t[OnCPU].TotalNs }
