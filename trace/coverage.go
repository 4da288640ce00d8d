package trace

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Part is a number of spans and the sum of their durations. Except in [Accounts.Long], the sum omits spans of
// [LongSpan] or more.
type Part struct {
	Spans int64 `json:"spans"`
	Nanos int64 `json:"ns"` // at least 0; saturates at the maximum
}

func (p *Part) add(q Part) {
	p.Spans += q.Spans
	if p.Nanos += q.Nanos; p.Nanos < 0 {
		p.Nanos = 1<<63 - 1
	}
}

// LongSpan is the duration from which the time of a span is counted separately. A span that was never ended, or whose
// end is wrong, can outlast all others together, and would then decide on its own what share of the time was judged.
const LongSpan = time.Hour

// Accounts divides spans by outcome: Requests, Own and Left add up to all spans. Long holds the spans of [LongSpan] or
// more, which are also counted in the other parts, but without their time.
type Accounts struct {
	Requests Part // of judged requests
	// Own holds the spans of judged requests that were started or called by other requests: detached work, and entries
	// below a missing span.
	Own  Part
	Left map[Reason]Part // left out
	Long Part
}

// add adds the parts of b.
func (a *Accounts) add(b *Accounts) {
	a.Requests.add(b.Requests)
	a.Own.add(b.Own)
	a.Long.add(b.Long)
	for reason, p := range b.Left {
		a.leave(reason, p)
	}
}

func (a *Accounts) leave(reason Reason, p Part) {
	if a.Left == nil {
		a.Left = make(map[Reason]Part)
	}
	sum := a.Left[reason]
	sum.add(p)
	a.Left[reason] = sum
}

// Judged returns the judged spans.
func (a *Accounts) Judged() Part {
	p := a.Requests
	p.add(a.Own)
	return p
}

// Received returns all spans.
func (a *Accounts) Received() Part {
	p := a.Judged()
	for _, left := range a.Left {
		p.add(left)
	}
	return p
}

// Distinct returns all spans except duplicates, whose content is judged with the spans that they copy.
func (a *Accounts) Distinct() Part {
	p, copies := a.Received(), a.Left[Duplicate]
	return Part{p.Spans - copies.Spans, p.Nanos - copies.Nanos}
}

// Shares returns the judged fractions (0–1) of the distinct spans and of their time, without the time of long spans.
// Both are 1 if there are no spans.
func (a *Accounts) Shares() (spans, time float64) {
	if a.Distinct().Spans == 0 {
		return 1, 1
	}
	return a.share(a.Judged())
}

// share returns p as fractions (0–1) of the distinct spans and of their time. The two fractions are equal if no span
// took any time.
func (a *Accounts) share(p Part) (spans, time float64) {
	all := a.Distinct()
	spans = float64(p.Spans) / float64(max(1, all.Spans))
	if all.Nanos == 0 {
		return spans, spans
	}
	return spans, float64(p.Nanos) / float64(all.Nanos)
}

// enoughCovered is the fraction of the spans, and of their time, below which we warn.
const enoughCovered = 0.95

// LacksRecords reports whether so many records could not be read that judgements of the rest may be incomplete.
func (c *Coverage) LacksRecords() bool {
	_, share := c.UnreadRecords()
	return share > 1-enoughCovered
}

// Lacks reports whether so many spans, or so much of their time, are left out that judgements of the rest may be
// incomplete. If so, it returns the reason that accounts for the largest fraction left out, with its fractions (0–1) of
// the distinct spans and of their time.
func (a *Accounts) Lacks() (reason Reason, spans, time float64, lacks bool) {
	if spans, time := a.Shares(); min(spans, time) >= enoughCovered {
		return "", 0, 0, false
	}
	for _, r := range slices.Sorted(maps.Keys(a.Left)) {
		s, t := a.share(a.Left[r])
		if r != Duplicate && max(s, t) > max(spans, time) {
			reason, spans, time = r, s, t
		}
	}
	return reason, spans, time, true
}

// Reasons yields the reasons for leaving out spans, each with the spans left out, most spans first.
func (a *Accounts) Reasons() iter.Seq2[Reason, Part] {
	reasons := slices.SortedFunc(maps.Keys(a.Left), func(x, y Reason) int {
		return cmp.Or(cmp.Compare(a.Left[y].Spans, a.Left[x].Spans), cmp.Compare(x, y))
	})
	return func(yield func(Reason, Part) bool) {
		for _, r := range reasons {
			if !yield(r, a.Left[r]) {
				return
			}
		}
	}
}

// Hop is a place between two services where there is a proxy or gateway that emits no spans.
type Hop struct {
	Caller, Callee Symbol // services before and behind the hop
}

// HopCount counts the requests that passed a hop without spans, and the calls that didn't.
type HopCount struct {
	Requests int64
	Direct   int64 // calls between the same services with nothing in between
	Peer     Op    // the hop's most frequent name in the attributes of its callers; 0 if unknown
}

// namedHop is a hop with its name in the caller's attributes. The name is 0 if the attributes contain no name, or if
// the calls passed no hop.
type namedHop struct {
	Hop
	peer Op
}

func (h namedHop) compare(o namedHop) int {
	return cmp.Or(h.Hop.compare(o.Hop), cmp.Compare(h.peer, o.peer))
}

// hopCalls counts the calls that passed a hop and the direct calls.
type hopCalls struct{ missing, direct int64 }

// Minimum fractions of the calls that must seem to pass a hop for it to count as a hop without spans. If fewer do,
// there is no such hop: the spans between the two services were lost.
const (
	passed      = 0.9  // of the calls between the two services
	leastPassed = 0.02 // of all calls of the caller
)

// Coverage accounts for spans by service: every received span is in exactly one part. It also counts the hops without
// spans. The zero value is empty. A Coverage must not be used concurrently.
type Coverage struct {
	Traces     int64 // closed
	Incomplete int64 // closed traces with a span whose parent is missing

	// Records counts the records of files that were read, and Unread counts the records that could not be read.
	Records int64
	Unread  map[Reason]int64

	services map[Symbol]*Accounts
	hops     map[namedHop]hopCalls // also of pairs of services without a hop
	recent   [64]recentAccounts
}

type recentAccounts struct {
	service  Symbol
	accounts *Accounts
}

// Limits on a Coverage. Services beyond the limit share the accounts of Symbol 0. Calls between pairs of services
// beyond the limit are not counted.
const (
	maxServices = 4096
	maxHops     = 8192
)

// of returns the accounts of service, or the shared accounts of Symbol 0 if there is no room for another service.
func (c *Coverage) of(service Symbol) *Accounts {
	r := &c.recent[service%Symbol(len(c.recent))]
	if r.accounts != nil && r.service == service {
		return r.accounts
	}
	if c.services == nil {
		c.services = make(map[Symbol]*Accounts)
	}
	a := c.services[service]
	if a == nil && len(c.services) >= maxServices {
		service = 0
		a = c.services[0]
	}
	if a == nil {
		a = new(Accounts)
		c.services[service] = a
	}
	*r = recentAccounts{service, a}
	return a
}

// part returns the Part that consists of s alone, without its time if s is long. A long s is also added to a.Long, with
// its time.
func (a *Accounts) part(s *Span) Part {
	p := Part{1, max(0, int64(s.End-s.Start))}
	if p.Nanos >= int64(LongSpan) {
		a.Long.add(p)
		p.Nanos = 0
	}
	return p
}

// Judge counts s as part of a judged request: in Own if own is true, and otherwise in Requests (see [Accounts]).
func (c *Coverage) Judge(s *Span, own bool) {
	a := c.of(s.Service)
	if own {
		a.Own.add(a.part(s))
		return
	}
	a.Requests.add(a.part(s))
}

// Leave counts s as left out for reason.
func (c *Coverage) Leave(s *Span, reason Reason) {
	a := c.of(s.Service)
	a.leave(reason, a.part(s))
}

// LeaveJudged moves all judged spans to those left out for reason.
func (c *Coverage) LeaveJudged(reason Reason) {
	for _, a := range c.services {
		if p := a.Judged(); p.Spans > 0 {
			a.Requests, a.Own = Part{}, Part{}
			a.leave(reason, p)
		}
	}
}

// LeaveSpans counts n spans of unknown services as left out.
func (c *Coverage) LeaveSpans(n int64, reason Reason) {
	if n > 0 {
		c.of(0).leave(reason, Part{Spans: n})
	}
}

// LeaveRecords counts n records of the input that could not be read. The number of their spans is unknown.
func (c *Coverage) LeaveRecords(n int64, reason Reason) {
	if n == 0 {
		return
	}
	if c.Unread == nil {
		c.Unread = make(map[Reason]int64)
	}
	c.Unread[reason] += n
}

// UnreadRecords returns the number of records that could not be read, and their fraction (0–1) of all records.
func (c *Coverage) UnreadRecords() (n int64, share float64) {
	for _, of := range c.Unread {
		n += of
	}
	return n, float64(n) / float64(max(1, n+c.Records))
}

// CountHop counts a request that seems to have passed h: either the hop emits no spans, or its spans were lost. Hops
// tells the two apart. peer is the name of the hop in the caller's attributes, or 0.
func (c *Coverage) CountHop(h Hop, peer Op) { c.addHop(namedHop{h, peer}, hopCalls{missing: 1}) }

// CountCall counts a direct call between two services.
func (c *Coverage) CountCall(h Hop) { c.addHop(namedHop{Hop: h}, hopCalls{direct: 1}) }

func (c *Coverage) addHop(h namedHop, n hopCalls) {
	if c.hops == nil {
		c.hops = make(map[namedHop]hopCalls)
	}
	x, known := c.hops[h]
	if !known && len(c.hops) >= maxHops {
		return
	}
	c.hops[h] = hopCalls{x.missing + n.missing, x.direct + n.direct}
}

// Lost returns the number of incomplete traces that hops without spans don't explain: spans of these traces must have
// been lost in transit. t holds the names.
func (c *Coverage) Lost(t *Table) int64 {
	lost := c.Incomplete
	for _, x := range c.Hops(t, c) {
		lost -= x.Requests
	}
	return max(0, lost)
}

// Merge adds o to c. It doesn't change o.
func (c *Coverage) Merge(o *Coverage) {
	c.Traces += o.Traces
	c.Incomplete += o.Incomplete
	c.Records += o.Records
	for reason, n := range o.Unread {
		c.LeaveRecords(n, reason)
	}
	for service := range keys(o.services, maxServices-len(c.services), cmp.Compare) {
		c.of(service).add(o.services[service])
	}
	for h := range keys(o.hops, maxHops-len(c.hops), namedHop.compare) {
		c.addHop(h, o.hops[h])
	}
}

// keys yields the keys of m. If there may not be room for all of them, it yields them in order, because the order then
// determines which ones fit.
func keys[K comparable, V any](m map[K]V, room int, compare func(a, b K) int) iter.Seq[K] {
	if len(m) <= room {
		return maps.Keys(m)
	}
	return slices.Values(slices.SortedFunc(maps.Keys(m), compare))
}

func (h Hop) compare(o Hop) int {
	return cmp.Or(cmp.Compare(h.Caller, o.Caller), cmp.Compare(h.Callee, o.Callee))
}

// Equal reports whether c and o account for the same spans in the same way.
func (c Coverage) Equal(o Coverage) bool {
	same := func(a, b *Accounts) bool {
		return a.Requests == b.Requests && a.Own == b.Own && a.Long == b.Long && maps.Equal(a.Left, b.Left)
	}
	return c.Traces == o.Traces && c.Incomplete == o.Incomplete && c.Records == o.Records &&
		maps.Equal(c.Unread, o.Unread) &&
		maps.EqualFunc(c.services, o.services, same) && maps.Equal(c.hops, o.hops)
}

// Total returns the accounts of all services together.
func (c *Coverage) Total() Accounts {
	var all Accounts
	for _, a := range c.services {
		all.add(a)
	}
	return all
}

// Services yields the accounts by service, the service with the most time left out first. Symbol 0 stands for spans of
// unknown services, and of services that there was no room for.
func (c *Coverage) Services() iter.Seq2[Symbol, *Accounts] {
	left := func(s Symbol) int64 {
		a := c.services[s]
		return a.Received().Nanos - a.Judged().Nanos
	}
	services := slices.SortedFunc(maps.Keys(c.services), func(x, y Symbol) int {
		return cmp.Or(cmp.Compare(left(y), left(x)), cmp.Compare(x, y))
	})
	return func(yield func(Symbol, *Accounts) bool) {
		for _, s := range services {
			if !yield(s, c.services[s]) {
				return
			}
		}
	}
}

// sends reports whether c has spans of service and service is not callee. It returns false for Symbol 0, which doesn't
// stand for a single service.
func (c *Coverage) sends(service, callee Symbol) bool {
	_, sends := c.services[service]
	return sends && service != 0 && service != callee
}

// Hops yields the hops without spans, most requests first. If a hop has the name of a service with spans in seen, spans
// of that service were lost, so Hops doesn't count the requests that passed it. seen may cover more time than c. t
// holds the names.
func (c *Coverage) Hops(t *Table, seen *Coverage) iter.Seq2[Hop, HopCount] {
	calls := make(map[Symbol]float64) // by caller
	counts := make(map[Hop]HopCount)
	for h, n := range c.hops {
		calls[h.Caller] += float64(n.missing + n.direct)
		x := counts[h.Hop]
		x.Direct += n.direct
		if hop := t.Operation(h.peer).Service; !seen.sends(hop, h.Callee) && !seen.sends(t.HostOf(hop), h.Callee) {
			x.Requests += n.missing
			if most := c.hops[namedHop{h.Hop, x.Peer}].missing; x.Requests == n.missing || n.missing > most ||
				n.missing == most && h.peer > x.Peer {
				x.Peer = h.peer
			}
		}
		counts[h.Hop] = x
	}
	var hops []namedHop
	for h, x := range counts {
		if n := float64(x.Requests); n > 0 && n >= passed*float64(x.Requests+x.Direct) &&
			n >= leastPassed*calls[h.Caller] {
			hops = append(hops, namedHop{h, x.Peer})
		}
	}
	slices.SortFunc(hops, func(x, y namedHop) int {
		return cmp.Or(cmp.Compare(counts[y.Hop].Requests, counts[x.Hop].Requests), x.compare(y))
	})
	return func(yield func(Hop, HopCount) bool) {
		for _, h := range hops {
			if !yield(h.Hop, counts[h.Hop]) {
				return
			}
		}
	}
}
