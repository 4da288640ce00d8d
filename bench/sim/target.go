package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Target is the ground truth about the fault: what a search should find. A search that ranks any one of Tracepoints or
// Operations first, in any of Contexts, is right. (Contexts of a partly instrumented trace are shorter: compare what is left
// of them, or just the operation and the baseline context.)
//
// What the target is, and what the extra time is, by fault ("loss" is drawn as documented for the package):
//
//	slow-path    a function: 5–50 % of its executions take the loss longer
//	steady       a function: every execution takes the loss longer
//	attribute    a function: requests of one tenant (Key, Value), drawn by its share of them, take the loss longer
//	host         a function: executions on one host of its service (Key, Value) take the loss longer
//	payload      a function or serializer: the loss times the payload's size relative to the mean (Key)
//	third-party  the wait for a third party: 30–100 % of the calls take the loss longer; the CLIENT operation is right too
//	dns          a resolver: caches fail, so that 30–100 % of the calls look names up, and that takes the loss longer
//	disk         a disk probe: 20–100 % of the accesses take the loss longer
//	lock         a lock, if possible shared by operations: it is held so long that it is taken 40–80 % of the time at the
//	             daily peak, but no longer than a healthy request takes in the mean; callers wait in turn
//	cpu          the run queues of a service, on one host (Key, Value) or all: bursts of others keep two cores 70–95 % busy
//	retry-storm  a remote call: 20–60 % of the attempts, three at most in a row, fail and take the loss each; the functions
//	             that repeat the call are right too
//	none         nothing
//
// All are locatable only if [App.Effect] says so: a fault may hit a function that few requests execute, that runs beside a
// longer branch, or that nobody waits for.
type Target struct {
	Fault       Fault
	Tracepoints []trace.Symbol  // that can be switched on and show it
	Operations  []trace.Op      // those of Tracepoints, and of the baseline where that shows it too
	Contexts    []trace.Context // full calling contexts of Operations with everything switched on, ascending, at most mostContexts
	// Baseline holds the calling contexts over the baseline only in which Contexts lie, ascending: an edge of one of them
	// carries the fault.
	Baseline []trace.Context
	Key      trace.Symbol // the variable that explains it; 0: none
	Value    trace.Symbol // its value; 0: the variable is numeric
	Text     string       // where it is and how strong, for people
}

// mostContexts bounds how many contexts of one point a target lists.
const mostContexts = 4096

// Target returns what there is to be found; without Tracepoints and Operations if the fault is None.
func (a *App) Target() Target {
	f := &a.fault
	t := Target{Fault: a.config.Fault}
	add := func(i int32) {
		p := &a.points[i]
		if !p.baseline {
			t.Tracepoints = append(t.Tracepoints, p.id)
		}
		t.Operations = append(t.Operations, p.op)
		full, baseline := a.contextsOf(i)
		t.Contexts = append(t.Contexts, full...)
		t.Baseline = append(t.Baseline, baseline...)
	}
	for _, i := range f.points {
		add(i)
		for _, c := range a.callersOf(i)[i] {
			if a.config.Fault == ThirdParty || a.config.Fault == RetryStorm && !a.points[c].baseline {
				add(c)
			}
		}
	}
	switch {
	case a.config.Fault == Payload:
		t.Key = a.table.Symbol("payload.size")
	case f.tenant != 0:
		t.Key, t.Value = a.table.Symbol("tenant"), f.tenant
	case f.hosts.end == f.hosts.first+1:
		t.Key, t.Value = a.symbols.hostName, a.hosts[f.hosts.first].sym
	}
	t.Text = a.faultText()
	slices.Sort(t.Contexts)
	t.Contexts = slices.Compact(t.Contexts)
	slices.Sort(t.Baseline)
	t.Baseline = slices.Compact(t.Baseline)
	return t
}

// faultText says where the fault is and how strong.
func (a *App) faultText() string {
	f := &a.fault
	if len(f.points) == 0 {
		return ""
	}
	op := a.points[f.points[0]].op
	where := a.table.ServiceName(op) + " " + a.table.OpName(op)
	mean := time.Duration(math.Exp(f.mu + f.sigma*f.sigma/2)).Round(time.Microsecond)
	switch a.config.Fault {
	case Lock:
		return fmt.Sprintf("%s: held for %v each", where, mean)
	case CPU:
		return fmt.Sprintf("%s: bursts of %v, %.1f/s on %d hosts", where, mean, f.arrivals, f.hosts.end-f.hosts.first)
	case SlowPath, ThirdParty, Attribute, Host, Payload, DNS, Disk, RetryStorm, Steady, None:
	}
	return fmt.Sprintf("%s: %v longer in %.0f %% of the executions concerned", where, mean, 100*f.chance)
}

// contextsOf returns the calling contexts of point i, with everything switched on and over the baseline only.
func (a *App) contextsOf(i int32) (full, baseline []trace.Context) {
	callers := a.callersOf(i)
	path := []int32{i} // from i upwards
	var climb func()
	climb = func() {
		if len(full) >= mostContexts {
			return
		}
		top := path[len(path)-1]
		if a.isRoot(top) {
			f, b := a.contextOf(path)
			full, baseline = append(full, f), append(baseline, b)
		}
		for _, c := range callers[top] {
			if a.points[top].kind == trace.Consumer {
				break // a root of its own
			}
			path = append(path, c)
			climb()
			path = path[:len(path)-1]
		}
	}
	climb()
	return full, baseline
}

func (a *App) isRoot(i int32) bool {
	return a.points[i].kind == trace.Consumer || slices.ContainsFunc(a.types, func(t requestType) bool { return t.entry == i })
}

// contextOf returns the calling contexts of path, which leads upwards to a root.
func (a *App) contextOf(path []int32) (full, baseline trace.Context) {
	for _, i := range slices.Backward(path) {
		p := &a.points[i]
		full = full.Child(p.op)
		if p.baseline {
			baseline = baseline.Child(p.op)
		}
	}
	return full, baseline
}

// callersOf returns the callers of i and of all of its callers, each once.
func (a *App) callersOf(i int32) map[int32][]int32 {
	above := make([]bool, len(a.points))
	above[i] = true
	callers := make(map[int32][]int32)
	for k := i; int(k) < len(a.points); k++ { // callers come after their callees
		p := &a.points[k]
		link := func(callee int32) {
			if above[callee] {
				above[k] = true
				if c := callers[callee]; !slices.Contains(c, k) {
					callers[callee] = append(c, k)
				}
			}
		}
		if p.rpc >= 0 {
			link(a.rpcs[p.rpc].callee)
		}
		for _, s := range a.sites[p.sites.first:p.sites.end] {
			link(s.callee)
		}
	}
	return callers
}
