package search

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// hostAttributes name the machine or the instance that a span ran on, the most readable first.
var hostAttributes = []struct{ key, noun string }{
	{"host.name", "host"}, {"k8s.pod.name", "pod"}, {"service.instance.id", "instance"},
}

// leastHost is the minimum fraction of the variance that a host must account for to be named.
const leastHost = 0.25

// waitSentence describes w, the waits in the kernel that carry a share of p: their class, their service, their function
// unless it is 0, and their host if one stands out.
func waitSentence(w *Suspect, function trace.Op, p *detect.Problem, table *trace.Table) string {
	if table == nil {
		return part(w.Share) + " of it is " + detect.Waiting("")
	}
	text := part(w.Share) + " of it is " + detect.Waiting(detect.WaitClass(table, w.Op))
	if service := table.ServiceName(w.Op); service != "" {
		text += " in " + service
		if function != 0 {
			text += " " + table.OpName(function)
		}
	}
	return text + hostOf(p)
}

// functionOf returns the function that contains the waits w: the function they were seen in, or else the innermost
// function known to carry keptShare of them. It returns 0 if neither is known, or table is nil.
func (o *operationScope) functionOf(w *Suspect, table *trace.Table) (function trace.Op) {
	if table == nil {
		return 0
	}
	service := table.Operation(w.Op).Service
	isFunction := func(op trace.Op) bool {
		x := table.Operation(op)
		return op != 0 && x.Service == service && x.Kind == trace.Internal
	}
	if seen := table.Context(table.Context(w.Context).Parent).Op; isFunction(seen) {
		return seen
	}
	for i := range o.locations { // parents come before children
		l := &o.locations[i]
		if i > 0 && l.known && l.layer == cct.App && o.score*l.share >= keptShare*w.Share && isFunction(l.op) {
			function = l.op
		}
	}
	return function
}

// hostOf names the host that accounts for much of the variance of p, like ", on host b", or returns "".
func hostOf(p *detect.Problem) string {
	for _, a := range hostAttributes {
		at := slices.IndexFunc(p.Explanations, func(e detect.Explanation) bool {
			return e.Variable == a.key && e.Value != "" && e.Effect >= leastHost && e.PValue <= 0.05
		})
		if at >= 0 {
			return ", on " + a.noun + " " + p.Explanations[at].Value
		}
	}
	return ""
}

// leastComputing is the minimum own time of a function, relative to its waits for a CPU, for the waits to count as a
// consequence of computing.
const leastComputing = 1.0 / 3

// creditComputing counts waits for a CPU as own time of the function around them if this function itself computes for
// long. On a busy machine, a thread that computes for longer also waits longer for its turn. But if only the waits have
// grown, other threads take the CPU.
func (o *operationScope) creditComputing(table *trace.Table) {
	if table == nil {
		return
	}
	turns := make(map[int32]float64) // own shares of waits for a CPU, by the known location above
	each := func(do func(l *location, above int32)) {
		for i := 1; i < len(o.locations); i++ {
			l := &o.locations[i]
			if l.known && l.layer == cct.Kernel && l.own > 0 && detect.WaitsForCPU(detect.WaitClass(table, l.op)) {
				do(l, o.locations[l.parent].region)
			}
		}
	}
	each(func(l *location, above int32) { turns[above] += l.own })
	computes := make(map[int32]bool)
	for i, waits := range turns {
		f := &o.locations[i]
		computes[i] = f.layer == cct.App && f.own >= leastComputing*waits
	}
	each(func(l *location, above int32) {
		if f := &o.locations[above]; computes[above] {
			f.own += l.own
			f.ownSD = math.Sqrt(max(0, f.ownSD*f.ownSD-l.ownSD*l.ownSD))
			l.own, l.computing = 0, true
		}
	})
}

// largestWait is the minimum share of a scope that the largest kind of waits must carry to explain it, if all kinds
// together carry most of it.
const largestWait = 1.0 / 3

// explainingWaits returns the largest kind of waits in the kernel, and whether it explains the scope because it carries
// at least half of it. If two kinds follow each other, such as waits for a disk and then for a busy CPU, neither may
// carry half. In that case the larger kind explains the scope.
func (o *operationScope) explainingWaits(table *trace.Table) (most Suspect, explain bool) {
	most, all := o.waits(table)
	return most, most.Share >= explainedShare*o.score || most.Share >= largestWait*o.score && all >= keptShare*o.score
}

// waits returns the largest kind of known waits in the kernel within the scope, as one suspect, and the share of all
// known waits. Classes that sentences don't distinguish are one kind; Op and Context belong to the largest of them.
// Both results are zero if no waits are known.
func (o *operationScope) waits(table *trace.Table) (most Suspect, all float64) {
	sums, largest := make(map[trace.Op]Suspect), make(map[trace.Op]float64)
	for i := range o.locations {
		l := &o.locations[i]
		if !l.known || l.layer != cct.Kernel || l.share <= 0 || l.computing {
			continue
		}
		kind := kindOfWait(l.op, table)
		sum := sums[kind]
		share := sum.Share + o.score*l.share
		all += o.score * l.share
		if l.share > largest[kind] {
			largest[kind], sum = l.share, o.suspect(int32(i), 0)
		}
		sum.Share, sum.Inclusive = share, share
		sums[kind] = sum
		if share > most.Share {
			most = sum
		}
	}
	return most, all
}

// kindOfWait maps the wait op to an operation that is the same for all waits of its service that sentences don't
// distinguish.
func kindOfWait(op trace.Op, table *trace.Table) trace.Op {
	if table == nil {
		return op
	}
	class := detect.WaitClass(table, op)
	if class == "" {
		return op
	}
	return trace.OpOf(table.Operation(op).Service, trace.SymbolOf([]byte(detect.Waiting(class))), trace.Internal)
}

// rareWait is the prior weight of waits that seldom make requests slow, relative to the weight of the others.
const rareWait = 0.25

// preferCommonWaits makes the search start with the classes of waits that slow most applications down: waits for a CPU,
// a lock, the disk, or the network. It matters because there are many classes and, unlike functions, all of them may
// occur anywhere.
func (o *operationScope) preferCommonWaits(table *trace.Table) {
	if table == nil {
		return
	}
	for i := range o.locations {
		l := &o.locations[i]
		if class := detect.WaitClass(table, l.op); l.layer == cct.Kernel && class != "" && !detect.IsCommonWait(class) {
			l.priorWeight *= rareWait
			l.rare = true
		}
	}
}

// leastClasses is the minimum number of wait classes that must be known for a place to count as not waiting.
const leastClasses = 8

// neverWaits reports whether waits in the kernel are known to carry hardly any of the scope's time: all offered classes
// were on and together carry less than 1 - keptShare. At least one wait must have been seen, since otherwise the
// records may not have arrived.
func (o *operationScope) neverWaits() bool {
	known, seen, share, square := make(map[trace.Symbol]bool), false, 0.0, 0.0
	for i := range o.locations {
		l := &o.locations[i]
		if l.layer != cct.Kernel {
			continue
		}
		if !l.known {
			return false
		}
		known[l.tp] = true
		seen = seen || l.executed
		share += max(0, l.share)
		square += l.half * l.half
	}
	return seen && len(known) >= leastClasses && share+math.Sqrt(square) < 1-keptShare
}
