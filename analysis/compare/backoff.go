package compare

import (
	"maps"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

const (
	// longestBackoff is the longest time that a caller waits after a failed call, in usual durations of a request.
	// People choose such waits with request durations in mind: from a tenth of a second to a few seconds.
	longestBackoff = 10
	// leastBegun is the minimum share of the failed calls that must also have failed at the callee. Below it, the
	// caller is the cause.
	leastBegun = 0.5
)

// chargeBackoff charges the service where failures start for the time that callers wait before they retry failed calls.
// The wait is part of the own time of the caller, because no span shows it; chargeBackoff moves it to the wire to that
// service. This is justified because the wait and the failures start at the same time: a caller that is slow for
// another reason is slow whether or not its calls fail.
func (l *ledger) chargeBackoff() {
	for _, number := range l.failingSites() {
		s, called := &l.sites[number], l.callee[number].Service
		if !s.Client || s.Border || s.Parent == 0 || called == 0 || called == s.Service {
			continue
		}
		failing := l.failing[number] / l.requests
		caller := history.Callee{Service: s.Service, Op: s.Parent}
		own := l.slow[caller]
		wait := min(own, longestBackoff*failing)
		if wait <= 0 || l.failingAt(number) < leastBegun*failing {
			continue
		}
		l.slow[caller] -= wait
		l.own[caller] -= wait
		l.ops[caller] -= wait
		l.evidence[s.Service].own -= wait
		l.called.of(caller).explain(wait / own)
		begins := l.begins(number)
		l.ops[l.callee[begins]] += wait
		l.wire.Add(Wire{l.sites[begins].Service, l.callee[begins].Service, false}, 0, wait)
	}
}

// begins returns the site where the failures of the calls at site `number` start. It follows the calls of their callee
// to other services, as long as the failures of such a call explain most of the failures so far. It returns number if
// there is no such call.
func (l *ledger) begins(number int32) int32 {
	seen := make(map[int32]bool)
	for !seen[number] {
		seen[number] = true
		next, most := number, leastBegun*l.failing[number]
		for _, k := range l.callsBehind(number) {
			if n := l.failing[k]; n >= most && n > 0 && l.failingAt(k) >= leastBegun*n/l.requests {
				next, most = k, n
			}
		}
		number = next
	}
	return number
}

// callsBehind returns the sites of the calls to other services that the callee of site `number` makes to answer it.
func (l *ledger) callsBehind(number int32) (calls []int32) {
	service, seen := l.callee[number].Service, make(map[int32]bool)
	for left := []int32{l.index.step[number]}; len(left) > 0; {
		step := left[len(left)-1]
		left = left[:len(left)-1]
		if seen[step] {
			continue
		}
		seen[step] = true
		for _, i := range l.index.below.of(step) {
			switch s := &l.sites[i]; {
			case s.Service != service || s.Border:
			case s.Client && l.callee[i].Service != service && l.callee[i].Service != 0:
				calls = append(calls, i)
			default:
				left = append(left, l.index.step[i])
			}
		}
	}
	return calls
}

// failingSites returns the sites whose calls fail more often than before, ordered by their keys.
func (l *ledger) failingSites() []int32 {
	return sorting.Sorted(maps.Keys(l.failing), func(a, b int32) int {
		return l.sites[a].SiteKey.Compare(l.sites[b].SiteKey)
	})
}

// failingAt returns the failures that the callee of site `number` shows in its answers to that site, plus all calls
// that it did not answer, per request.
func (l *ledger) failingAt(number int32) float64 {
	service, calls := l.callee[number].Service, 0.0
	for _, i := range l.index.below.of(l.index.step[number]) {
		if l.sites[i].Service == service {
			calls += l.failing[i]
		}
	}
	return calls/l.requests + l.evidence[service].unanswered
}

// explain removes a fraction, part (0–1), of the excess of c and of the growth of its typical times.
func (c *operationCalls) explain(part float64) {
	for _, t := range []*callTimes{&c.known, &c.young} {
		t.excess *= 1 - part
		for i := range t.typical.parts {
			t.typical.parts[i].octaves *= 1 - part
		}
	}
}
