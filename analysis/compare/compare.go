// Package compare ranks the services of an application by their additional cost in some traces, the window, relative to
// a history. Its results are [Suspect]s. The only hint about the problem is the choice of the window. There are two
// kinds of history:
//
//   - A [Recording] keeps every call of recorded traces. Any [Traces] of it can be a window, and any others the
//     [Normal] that the window is compared with.
//   - [history.Sites] of a running service count calls by slice of time. A [Comparer] compares the last minutes with
//     the time before, into a [Comparison]. It also estimates when a change started ([Comparer.Onset]), names the
//     instances that carry it ([Comparer.InstanceParts]), and compares with the week before ([Comparer.Crept]).
//
// Both collect evidence site by site in a ledger, and attribute time on the wire to services with [Wires].
//
// The package is pure, like package analysis, and uses critical paths only.
package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/trace"
)

// Suspect is a service with its additional cost in a window.
type Suspect struct {
	Service trace.Symbol
	// Score is the equivalent of lost requests per request: critical-path time above the variation of the history, in
	// mean durations of normal requests, plus the fraction of requests with a changed shape above the variation of the
	// history. 0 means that there is only noise. In comparisons of a running service, Score leaves out Shape, because a
	// new version makes other calls; if they are slower or fail, that counts separately. Shape still orders the
	// suspects.
	Score float64
	// Soft orders suspects with equal scores, such as 0. It is the maximum, over the sites charged to the suspect, of
	// the distance between the mean in the window and the median of the history, in units of the distance between
	// median and fence.
	Soft float64
	// These are the parts of Score:
	//
	//   - Own: time spent in the service.
	//   - In, Out: time that the service is late for all of its callers, or with all of its callees.
	//   - Added: time of calls that it makes more often; see AddedCalls.
	//   - Errors, Unanswered, Shape: requests with a changed shape, because a span failed, because a call to the
	//     service was not answered, or for another reason.
	//   - Silent: requests that came steadily before and stopped; only in histories of a running service.
	//   - Rest: unexplained time on the wire to the service. If the service emits no spans, Rest also counts as Own of
	//     its callers: an alternative explanation, not an additional loss.
	Own, Added, In, Out, Errors, Unanswered, Silent, Shape, Rest float64
	// AddedCalls are the calls counted in Added, in descending order of Nanos.
	AddedCalls []AddedCall
	// Calls is the number of calls from other services per request of the window, at most 1. It is 1 for a service
	// without callers.
	Calls float64
	// Failures is the number of requests of the window that Errors and Unanswered stand for.
	Failures float64
	// Opaque means that the service emits no spans, and is known only because CLIENT spans name it.
	Opaque bool
	// From is the caller if nearly all of the evidence is time or requests lost on the way from that caller, outside
	// the spans of both services: in a hop without spans, in the network, or in the queue of the service. It is 0 if
	// the service itself is at fault, is late for several callers, or emits no spans.
	From trace.Symbol
	// Shared holds the parts of Score that a neighbour may cause, ordered by name. The parts come from calls between
	// the two services, or from own time and changed shapes of operations that call the neighbour. The parts of several
	// neighbours overlap.
	Shared []SharedPart
	// Operations are the operations with evidence, in descending order of Score.
	Operations []SuspectOperation
	// Whole holds the number of all calls of the service and the growth of their own time, measured against earlier
	// calls at the same sites. It is set only by [Comparer.Crept], by [Comparer.Grown] and, for a lasting [Judge], by
	// [Comparer.Compare].
	Whole SuspectOperation
	// Young means that most calls in Whole are at sites known for less than a day.
	Young bool
	// Unfailed means that most calls in Unanswered did not fail: either callers go on without the service, or it
	// answers and only its spans are missing.
	Unfailed bool
	// Instances are the instances, hosts, zones and versions that carry most of the cost, in descending order of Part.
	// Only histories of a running service distinguish instances.
	Instances []InstancePart
}

// AddedTime returns the part of the score that stands for additional time.
func (s *Suspect) AddedTime() float64 { return s.Own + s.Added + s.In + s.Out + s.Rest }

// AddedTime returns the time that all suspects add, which is at least the time of the first one. It leaves out the Rest
// of services without spans, because that is also the Own of their callers.
func AddedTime(suspects []Suspect) (total float64) {
	for i := range suspects {
		x := &suspects[i]
		total += x.AddedTime()
		if x.Opaque {
			total -= x.Rest
		}
	}
	if len(suspects) > 0 {
		total = max(total, suspects[0].AddedTime())
	}
	return total
}

// LostShare returns the first suspect's share (0–1) of the time that all suspects add, or 0 if they add no time.
func LostShare(suspects []Suspect) float64 {
	total := AddedTime(suspects)
	if total <= 0 {
		return 0
	}
	return min(1, suspects[0].AddedTime()/total)
}

// SharedPart is the part of the score of a service that it shares with a neighbour in the call graph.
type SharedPart struct {
	Service trace.Symbol
	Score   float64
}

// InstancePart is the share (0–1) that the calls with one value of an attribute have in a service's additional cost.
type InstancePart struct {
	Key, Value trace.Symbol
	Calls      uint64 // in the window
	Part       float64
	Of         int // number of values of Key with calls in the window
}

// Queue returns the operation of s that stands for a queue if at least half of the score of s is the time that messages
// wait in that queue, and otherwise nil. No request waits for these messages.
func (s *Suspect) Queue() *SuspectOperation {
	if len(s.Operations) == 0 || !s.Operations[0].Queue || s.Operations[0].Score < s.Score/2 {
		return nil
	}
	return &s.Operations[0]
}

// SuspectOperation is an operation of a suspect, with figures about its calls alone. Unlike Score, these figures don't
// depend on the operation's part in all requests.
type SuspectOperation struct {
	Op    trace.Op
	Queue bool    // Op is a queue, and its calls are messages that waited in it until the suspect took them
	Score float64 // like Suspect.Score, but may exceed it: it includes wire times that other services explain
	// Calls is the number of calls in the window. It is 0 if the operation can't be judged separately, because its
	// history is too short or its evidence is time on the wire. If a service emits no spans, Calls counts the calls to
	// it.
	Calls float64
	// Usual and Excess are own times per call in ns, averaged over sites. Usual is the upper limit of the history, and
	// Excess the time beyond it. If means are compared, as with Plain, Usual is the mean of the history, and Excess the
	// time added to it. For a queue they are set even if Calls is 0.
	Excess, Usual float64
	// Rise is the growth of the typical own time of the calls in octaves: 1 means twice as long. It is 0 within the
	// variation of the history. It shows small changes of most calls earlier than Excess does.
	Rise float64
	// RiseCalls is the number of calls that show Rise, and Risen the growth per call in ns.
	RiseCalls, Risen float64
	Failed           float64 // number of calls that failed or got no answer, above the variation of the history
	// If the calls of the operation got no answer, Answered is the number of similar calls that were answered. They
	// count as calls of another operation: the one that answered.
	Answered float64
	Stopped  float64 // calls per second that used to come steadily and have stopped
	Added    Addition
}

// FailedShare returns the share of the calls of o that failed, or 0 if it has no calls.
func (o *SuspectOperation) FailedShare() float64 {
	if o.Calls <= 0 {
		return 0
	}
	return min(1, o.Failed/(o.Calls+o.Answered))
}

// Addition is the time that an operation spends in calls that it makes more often than before.
type Addition struct {
	Calls float64 // number of calls of the operation in the window; 0 if it adds no calls
	Nanos float64 // ns added per call of the operation; see [AddedCall]
	Usual float64 // inclusive time in ns of a call of the operation before
}

// Compare ranks all services by their additional cost in the window relative to h: by Score, then Soft, then name. The
// result is empty if the window has no traces. The window must be a selection from the recording of h and should not
// overlap with h.
//
// Traces are compared site by site; a site is an operation together with its caller.
//
//  1. Slow. The mean own time in the window is compared with the means over pieces of the history with as many
//     occurrences; see [pieces]. The excess is the time above their fence, and above the mean of the history: less than
//     the whole change, but free of noise. Own time is charged to the service itself, except on the wire. The own time
//     of a CLIENT span is on the wire to its callee. If a call has no CLIENT span, so is the caller's time immediately
//     before and after it; see [callgraph.Reader].
//  2. Shifted. The shape of a span is the set of operations it called, about how often, and whether it failed. The
//     share of each shape is compared in the same way; all shapes absent from the history count as one. Only shapes
//     that become more frequent count, because if one becomes rarer, another becomes more frequent. Within a trace we
//     charge the deepest span with such a shape, because a failure below is a sufficient cause for its callers. A
//     CLIENT span without an answer is charged to the callee, and so is a span without CLIENT spans that fails before
//     its only callee has a span. If CLIENT spans fail although the callee does not, see [ledger.chargeFailures].
//  3. Added. The number of calls at a site per call of its caller is compared in the same way. The usual inclusive time
//     of the additional calls is charged to the caller; see [added].
//  4. Wire times are attributed to services; see [Wires].
//
// Compare takes time linear in the number of spans of the window, and of the history at the same sites.
func (h *Normal) Compare(window Traces) []Suspect {
	traces := window.list
	if len(traces) == 0 {
		return nil
	}
	g := graph{
		table:  h.rec.Table,
		sites:  h.rec.Sites,
		names:  h.rec.Names,
		opaque: h.Opaque,
		callee: h.callee,
		index:  indexOf(h.rec.Sites, h.rec.Names, h.rec.Table),
	}
	g.setBehind(func(i int32) uint64 { return uint64(h.series[i].len()) })
	requests, _ := h.long.others(traces)
	l := newLedger(g, max(1, requests), h.duration, Plain)
	l.long = h.long.at
	w := &recordedWindow{
		ledger:     l,
		h:          h,
		traces:     traces,
		surplus:    make(map[siteShape]float64),
		leaf:       h.rec.shapeNumbers[callgraph.Leaf],
		failedLeaf: h.rec.shapeNumbers[callgraph.FailedLeaf],
		seen:       make([]int32, len(h.rec.shapeNumbers)+2),
		all:        sumsOf(h.rec, traces),
	}
	l.chargeSource(w)
	return l.rank()
}
