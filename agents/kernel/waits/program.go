package waits

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Program sums up the processes of a report that have the same name, such as the workers of a server.
type Program struct {
	Comm      string
	PID       uint32 // 0 if there are several processes
	Processes int
	Working   int     // processes that worked
	Threads   int     // threads that worked
	Totals    Totals  // of the threads that worked, or of all if none did
	Named     []Named // parts of Totals, longest first
}

// Programs returns the sums of all programs, longest time of work first.
func (r *Report) Programs() []Program {
	byName := make(map[string]*Program)
	all := make(map[string]*Totals)
	working := make(map[string]map[uint32]bool)
	for i := range r.Processes {
		p := &r.Processes[i]
		x := byName[p.Comm]
		if x == nil {
			x = &Program{Comm: p.Comm, PID: p.PID}
			byName[p.Comm], all[p.Comm], working[p.Comm] = x, new(Totals), make(map[uint32]bool)
		}
		x.Processes++
		all[p.Comm].addAll(&p.Totals)
		before := x.Threads
		for j := range p.Threads {
			if t := &p.Threads[j].Totals; t.Works() {
				x.Threads++
				x.Totals.addAll(t)
			}
		}
		if x.Threads > before {
			x.Working++
			working[p.Comm][p.PID] = true
		}
	}
	programs := make([]Program, 0, len(byName))
	for name, x := range byName {
		if x.Processes > 1 {
			x.PID = 0
		}
		if x.Threads == 0 {
			x.Totals = *all[name]
		}
		x.Named = r.named(&x.Totals, working[name])
		programs = append(programs, *x)
	}
	sorting.SliceStable(programs, func(a, b Program) int {
		return cmp.Or(compareWork(&a.Totals, &b.Totals), cmp.Compare(a.Comm, b.Comm))
	})
	return programs
}

func (t *Totals) addAll(o *Totals) {
	for class := range t {
		t[class].Add(o[class])
	}
}

// workNs returns the time in classes in which no thread is idle: it runs, waits for a CPU, or waits for something that
// the kernel does for it.
func (t *Totals) workNs() (ns uint64) {
	for _, c := range []Class{OnCPU, Preempted, RunQueue, File, Sync, Fault, DNS} {
		ns += t[c].TotalNs
	}
	return ns
}

// idlePart is the part of its time of which a thread must work less to count as idle. Idle threads still wake up now
// and then. A thread that spends its time waiting for the locks of others runs for much more than a thousandth of it.
const idlePart = 1000

// Works reports whether the thread or process with the sums t worked, rather than waited for work.
func (t *Totals) Works() bool { return idlePart*t.workNs() >= t.Ns() }

// compareWork orders sums by their time of work, longest first, and then by their time off the CPU.
func compareWork(a, b *Totals) int {
	return cmp.Or(cmp.Compare(b.workNs(), a.workNs()), cmp.Compare(offCPU(b), offCPU(a)))
}
