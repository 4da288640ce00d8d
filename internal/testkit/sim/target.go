package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Target is the ground truth about the fault. A search is correct if it ranks one of Tracepoints or Operations first,
// in any of Contexts. The contexts in partly instrumented traces are shorter, so compare only the part that remains, or
// the operation and the baseline context.
//
// Location and extra time of each fault (the package documentation defines the distribution of the "delay"):
//
//	slow-path    a function: the delay, in 5–50 % of its executions
//	steady       a function: the delay, in each execution
//	attribute    a function: the delay, in requests of one tenant (Key, Value), drawn by frequency
//	host         a function: the delay, on one host of its service (Key, Value)
//	payload      a function or serializer: the delay times the payload's size (Key) relative to the mean
//	third-party  the wait for a third party: the delay, in 30–100 % of the calls; the CLIENT operation is correct, too
//	dns          a resolver: caches fail, so that 30–100 % of the calls resolve names, with the delay
//	disk         a disk probe: the delay, in 20–100 % of the accesses
//	lock         a lock, if possible shared by operations: it is held longer, so that it is taken 40–80 % of the time
//	             at the daily peak, but at most for the mean duration of a healthy request; callers queue
//	cpu          the run queues of a service, on one host (Key, Value) or all: bursts of other work keep two cores
//	             70–95 % busy
//	retry-storm  a remote call: 20–60 % of the attempts, at most three in a row, fail after the delay; the functions
//	             that repeat the call are correct, too
//	none         none
//
// A fault can be located only if [App.Effect] reports so. It may lie in a function that few requests execute, that runs
// in parallel to a longer branch, or for which no caller waits.
type Target struct {
	Fault       Fault
	Tracepoints []trace.Symbol // tracepoints that show the fault
	// Operations lists the operations of Tracepoints, and baseline operations that show the fault, as steps (see
	// [trace.Op.To]).
	Operations []trace.Op
	// Contexts lists the calling contexts of Operations with all tracepoints enabled, ascending, at most maxContexts.
	Contexts []trace.Context
	// Baseline lists the baseline contexts of Contexts, ascending. An edge with one of these contexts carries the
	// fault.
	Baseline []trace.Context
	Key      trace.Symbol // variable that explains the fault; may be 0
	Value    trace.Symbol // value of the variable; 0 if it is numeric
	Text     string       // location and strength, for people
}

// maxContexts limits the number of contexts of a point.
const maxContexts = 4096

// Target returns the ground truth. Without a fault, it has neither Tracepoints nor Operations.
func (a *App) Target() Target {
	f := &a.fault
	t := Target{Fault: a.config.Fault}
	add := func(i int32) {
		p := &a.points[i]
		if !p.baseline {
			t.Tracepoints = append(t.Tracepoints, p.id)
		}
		t.Operations = append(t.Operations, a.stepsOf(i)...)
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

// faultText returns the location and the strength of the fault, for people.
func (a *App) faultText() string {
	f := &a.fault
	if len(f.points) == 0 {
		return ""
	}
	op := a.points[f.points[0]].op
	where := a.table.ServiceName(op) + " " + a.table.OpName(op)
	if p := &a.points[f.points[0]]; p.action == call && !a.config.CalleeNames {
		callee := a.points[a.rpcs[p.rpc].callee].op
		where += ", calling " + a.table.ServiceName(callee) + " " + a.table.OpName(callee)
	}
	mean := time.Duration(math.Exp(f.mu + f.sigma*f.sigma/2)).Round(time.Microsecond)
	switch a.config.Fault {
	case Lock:
		return fmt.Sprintf("%s: held for %v each", where, mean)
	case CPU:
		return fmt.Sprintf("%s: bursts of %v, %.1f/s on %d hosts", where, mean, f.arrivals, f.hosts.end-f.hosts.first)
	case SlowPath, ThirdParty, Attribute, Host, Payload, DNS, Disk, RetryStorm, Steady, None:
	}
	return fmt.Sprintf("%s: %v longer in %.0f %% of the eligible executions", where, mean, 100*f.chance)
}

// stepsOf returns the steps that spans of point i can have. If i is a CLIENT or PRODUCER point, it omits steps shared
// with other points, because such a step doesn't identify a location.
func (a *App) stepsOf(i int32) []trace.Op {
	steps := a.allSteps(i)
	if a.points[i].kind != trace.Client && a.points[i].kind != trace.Producer {
		return steps
	}
	for k := range a.points {
		if int32(k) != i && a.points[k].op == a.points[i].op {
			others := a.allSteps(int32(k))
			steps = slices.DeleteFunc(steps, func(op trace.Op) bool { return slices.Contains(others, op) })
		}
	}
	return steps
}

// allSteps returns the steps that spans of point i can have, for both answered and unanswered calls.
func (a *App) allSteps(i int32) []trace.Op {
	p := &a.points[i]
	steps := []trace.Op{p.op}
	if p.callee >= 0 {
		for _, peer := range a.calls[p.callee].peers {
			steps = append(steps, p.op.To(peer))
		}
	}
	if p.action == call {
		steps = append(steps, p.op.To(a.points[a.rpcs[p.rpc].callee].op))
	}
	return steps
}

// contextsOf returns at most maxContexts calling contexts of point i: full with all tracepoints enabled, and baseline
// with only the baseline.
func (a *App) contextsOf(i int32) (full, baseline []trace.Context) {
	callers := a.callersOf(i)
	path := []int32{i} // from i upwards
	var climb func()
	climb = func() {
		if len(full) >= maxContexts {
			return
		}
		top := path[len(path)-1]
		if a.isRoot(top) {
			f, b := a.contextOf(path)
			full, baseline = append(full, f), append(baseline, b)
		}
		for _, c := range callers[top] {
			if a.points[top].kind == trace.Consumer {
				break // a separate root
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
	return a.points[i].kind == trace.Consumer ||
		slices.ContainsFunc(a.types, func(t requestType) bool { return t.entry == i })
}

// contextOf returns the calling contexts of a path that leads upwards to a root.
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

// callersOf returns the callers of i and of its direct and indirect callers, without duplicates.
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
