package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits and thresholds of [addresses].
const (
	maxAddresses     = 1 << 14 // maximum number of known addresses, and of pairs and sites with an address in a tally
	maxOpenAddresses = 1 << 16 // maximum number of pairs of an address and a service per epoch
	spareAddresses   = maxAddresses / 8
	minResidence     = 3  // minimum number of calls that a service must have answered at an address to own it
	residencePercent = 90 // minimum share of the calls to an address in an epoch that its service answers
)

// addresses learns which service is at a network address, from answered calls and from the spans of servers that name
// their own address. If calls to an address later get no answer, they count as calls to the service. We must know the
// address before that, because nothing can be learned during an outage.
//
// An address where several services answer is a proxy and belongs to no service. If another service takes over an
// address, such as the address of a terminated pod, it owns the address after minResidence calls. A service behind a
// hop without spans takes over the address of the hop. If a service has answered at that address directly, the takeover
// requires two hours without a direct answer. Answers are learned only when their epoch ends, so that the order of the
// calls within an epoch doesn't matter.
type addresses struct {
	known map[trace.Address]resident
	open  map[answer]uint64 // calls of the open epoch
}

// resident is the service at an address.
type resident struct {
	service trace.Symbol
	calls   uint64 // calls that the service answered, up to minResidence
	seen    Slice  // end of the last epoch with calls that the service answered
	behind  bool   // whether it has answered only behind a hop without spans
}

// answer is an address and a service that answered there.
type answer struct {
	address trace.Address
	service trace.Symbol
	behind  bool // whether it answered behind a hop without spans
}

func (a answer) compare(b answer) int {
	return cmp.Or(cmp.Compare(a.address, b.address), trace.CompareBools(a.behind, b.behind),
		cmp.Compare(a.service, b.service))
}

// answers counts the calls that services answered at addresses.
type answers struct {
	calls  map[answer]*uint64
	recent [256]countedAnswer
}

// countedAnswer caches the counter of an answer, to save the map lookup.
type countedAnswer struct {
	answer
	calls *uint64
}

func newAnswers() answers { return answers{calls: make(map[answer]*uint64)} }

// count counts a call that was answered as x describes. It ignores x if x is new and the limit on pairs of addresses
// and services is reached.
func (a *answers) count(x answer) {
	recent := &a.recent[(uint64(x.address)^uint64(x.service))%uint64(len(a.recent))]
	if recent.calls == nil || recent.answer != x {
		calls := a.calls[x]
		if calls == nil {
			if len(a.calls) >= maxAddresses {
				return
			}
			calls = new(uint64)
			a.calls[x] = calls
		}
		*recent = countedAnswer{x, calls}
	}
	*recent.calls++
}

// service returns the service at address `at`, or 0 if it is unknown.
func (a *addresses) service(at trace.Address) trace.Symbol {
	if r := a.known[at]; r.calls >= minResidence {
		return r.service
	}
	return 0
}

// direct returns the service at address `at`, or 0 if it is unknown or has only answered behind a hop.
func (a *addresses) direct(at trace.Address) trace.Symbol {
	if a.known[at].behind {
		return 0
	}
	return a.service(at)
}

// merge adds the answers of a tally to the open epoch. It keeps the maxOpenAddresses smallest pairs.
func (a *addresses) merge(counted *answers) {
	if a.open == nil {
		a.open = make(map[answer]uint64)
	}
	for x, calls := range counted.calls {
		a.open[x] += *calls
	}
	if len(a.open) > maxOpenAddresses {
		for _, x := range sorting.Sorted(maps.Keys(a.open), answer.compare)[maxOpenAddresses:] {
			delete(a.open, x)
		}
	}
}

// learn ends an epoch at slice now: it updates the known addresses from the answers counted during the epoch.
func (a *addresses) learn(now Slice) {
	if len(a.open) == 0 {
		return
	}
	if a.known == nil {
		a.known = make(map[trace.Address]resident)
	}
	sorted := sorting.Sorted(maps.Keys(a.open), answer.compare)
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].address == sorted[0].address {
			n++
		}
		a.settle(sorted[:n], now)
		sorted = sorted[n:]
	}
	a.open = nil
	if len(a.known) > maxAddresses {
		a.forget()
	}
}

// settle updates the service at one address from its answers in the epoch that ends at slice now. Answers from behind a
// hop must come last.
func (a *addresses) settle(answers []answer, now Slice) {
	r := a.known[answers[0].address]
	own := len(answers)
	for own > 0 && answers[own-1].behind {
		own--
	}
	switch {
	case own > 0:
		answers = answers[:own]
	case r.service != 0 && !r.behind && now-r.seen <= Slice(Span/SliceLength):
		return
	}
	most, all := answers[0], uint64(0)
	for _, x := range answers {
		all += a.open[x]
		if a.open[x] > a.open[most] {
			most = x
		}
	}
	switch {
	case 100*a.open[most] < residencePercent*all:
		r.calls = 0
	case r.service == most.service:
		r.calls += a.open[most]
	default:
		r.service, r.calls = most.service, a.open[most]
	}
	r.calls, r.seen, r.behind = min(r.calls, minResidence), now, own == 0
	a.known[most.address] = r
}

// forget deletes the least recently seen addresses until spareAddresses are free.
func (a *addresses) forget() {
	all := sorting.Sorted(maps.Keys(a.known), func(x, y trace.Address) int {
		return cmp.Or(cmp.Compare(a.known[x].seen, a.known[y].seen), cmp.Compare(x, y))
	})
	for _, x := range all[:len(all)-maxAddresses+spareAddresses] {
		delete(a.known, x)
	}
}

func (a *addresses) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(a.known)))
	for _, x := range slices.Sorted(maps.Keys(a.known)) {
		r := a.known[x]
		b = codec.AppendWords(b, uint64(r.service))
		b = codec.AppendUvarints(b, uint64(x), r.calls, uint64(r.seen))
		b = codec.AppendBools(b, r.behind)
	}
	b = codec.AppendUvarints(b, uint64(len(a.open)))
	for _, x := range sorting.Sorted(maps.Keys(a.open), answer.compare) {
		b = codec.AppendWords(b, uint64(x.service))
		b = codec.AppendUvarints(b, uint64(x.address), a.open[x])
		b = codec.AppendBools(b, x.behind)
	}
	return b
}

func (a *addresses) read(r *codec.Reader) {
	a.known, a.open = make(map[trace.Address]resident), make(map[answer]uint64)
	const known, open = 12, 11 // bytes
	for range r.Count(known) {
		service := trace.Symbol(r.Word())
		a.known[trace.Address(r.Below(1<<32))] = resident{service, r.Below(minResidence + 1), readSlice(r), r.Bool()}
	}
	r.Check(len(a.known) <= maxAddresses)
	for range r.Count(open) {
		service := trace.Symbol(r.Word())
		address, calls := trace.Address(r.Below(1<<32)), r.Below(1<<62)
		a.open[answer{address, service, r.Bool()}] = calls
	}
	r.Check(len(a.open) <= maxOpenAddresses)
}
