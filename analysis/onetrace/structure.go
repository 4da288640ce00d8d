package onetrace

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// rareShare is the maximum share of the calls at a site that an unusual shape can have. Accordingly, a call is expected
// if at least 1 − rareShare of the calls at the site make it. Five percent is a convention, as in statistical tests,
// not a property of an application.
const rareShare = 0.05

// changedShape is the certainty of a shape that no normal trace has. It is half the certainty of a failure, because the
// request may still have done its work.
const changedShape = 0.5

// structure charges calls that fail, that lack an answer or usual calls, or that are new. The certainty of each is
// between 0 and 1.
//
//   - A failed span is charged if less than half of the calls at its site fail.
//   - A CLIENT span without an answer is charged to the callee that usually answers.
//   - A span with an unusual shape, the set of sites that it calls, is compared with the normal calls at its site that
//     make the same calls and maybe more. If rareShare of them or less stop there, the calls that nearly all of them
//     make are missing.
//   - A call to a new site is charged to that site. If normal calls continue in different ways, as in a dispatcher, the
//     new call may be just another way and counts half. If knownType is false, no call counts as new.
//
// The deepest call is charged, because a change below is a sufficient cause of a change above. A caller is charged only
// if its certainty exceeds the certainty of the calls below it, and only for the difference.
func (x *explaining) structure(knownType bool) {
	explained := make([]float64, len(x.calls))
	for i, c := range slices.Backward(x.calls) {
		if c.Site == history.Overflow || x.isBorder(i) {
			continue
		}
		below := explained[i]
		for _, found := range x.changes(i, knownType) {
			if certainty := found.certainty - below; certainty > 0 {
				x.chargeChange(&found, certainty*x.unit)
			}
			explained[i] = max(explained[i], found.certainty)
		}
		if c.Parent >= 0 {
			explained[c.Parent] = max(explained[c.Parent], explained[i])
		}
	}
}

// change is a difference in structure between a call and normal calls.
type change struct {
	suspectKey
	node       int32
	certainty  float64
	excess     float64
	caller     trace.Op
	missing    []trace.Op
	unanswered bool
}

func (x *explaining) chargeChange(c *change, score float64) {
	s := x.charge(c.suspectKey, c.node, c.excess, score)
	s.Unanswered = s.Unanswered || c.unanswered
	s.Caller = cmp.Or(s.Caller, c.caller)
	for _, op := range c.missing {
		if !slices.Contains(s.Missing, op) {
			s.Missing = append(s.Missing, op)
		}
	}
	x.evidence[c.service] += score
}

// changes returns the changes at call i itself, not at the calls below it.
func (x *explaining) changes(i int, knownType bool) (found []change) {
	c := &x.calls[i]
	at, s := &x.rec.Sites[c.Site], x.known(c.Site)
	own := change{suspectKey: suspectKey{service: at.Service, op: at.Op}, node: x.nodes[i]}
	if u := x.unanswered[i]; u.certainty > 0 {
		own.reason, own.certainty, own.unanswered = Missing, u.certainty, true
		if u.callee.Service != 0 {
			own.service, own.op = u.callee.Service, u.callee.Op
		}
		return append(found, own)
	}
	if x.failed(x.path, i) && (s != nil || knownType) {
		share := 0.0
		if s != nil {
			share = float64(s.failed) / float64(s.calls)
		}
		if share < 0.5 {
			failed := own
			failed.reason, failed.certainty = Failed, 1-share
			found = append(found, failed)
		}
	}
	if s == nil || s.calls < history.MinHistory {
		return found
	}
	if certainty := changedShape * s.unusual(x.below[i].sites); certainty > 0 {
		found = append(found, x.shapeChanges(i, s, own, certainty, knownType)...)
	}
	return found
}

// shapeChanges returns the changes that make the shape of call i unusual.
func (x *explaining) shapeChanges(i int, s *siteProfile, own change,
	certainty float64, knownType bool,
) (found []change) {
	known, unknown := x.split(i)
	next := s.continuation(known)
	varies := next.varies()
	if next.goesOn() && (len(unknown) == 0 || !varies) {
		own.reason, own.certainty, own.caller = Missing, certainty, own.op
		for _, site := range x.expected(&next) {
			at := &x.rec.Sites[site]
			own.missing = append(own.missing, at.Op)
			if len(own.missing) == 1 && at.Service == own.service {
				own.op = at.Op
			}
		}
		found = append(found, own)
	}
	if !knownType {
		return found
	}
	if varies {
		certainty /= 2
	}
	for _, k := range unknown {
		group := x.below[i].group(k)
		at := &x.rec.Sites[x.below[i].sites[k]]
		c := change{
			suspectKey: suspectKey{service: at.Service, op: at.Op, reason: New},
			node:       x.nodes[group[0]],
			certainty:  certainty,
		}
		for _, call := range group {
			c.excess += x.inclusive[call]
		}
		found = append(found, c)
	}
	return found
}

// split divides the sites called by call i into known and unknown ones. It returns the unknown ones as numbers of their
// groups, and leaves out unanswered calls.
func (x *explaining) split(i int) (known []int32, unknown []int) {
	b := &x.below[i]
	for k, site := range b.sites {
		switch {
		case len(x.unanswered) > 0 && x.unanswered[b.group(k)[0]].certainty > 0:
		case x.known(site) != nil:
			known = append(known, site)
		default:
			unknown = append(unknown, k)
		}
	}
	return known, unknown
}

// newType reports whether no normal trace has a request of this type: the root is new, or a span with varying calls, in
// the root's service, makes a new call. A gateway has one root operation for requests of all types.
func (x *explaining) newType() bool {
	root := &x.rec.Sites[x.calls[0].Site]
	inRoot := make([]bool, len(x.calls))
	for i := range x.calls {
		c := &x.calls[i]
		at := &x.rec.Sites[c.Site]
		inRoot[i] = at.Service == root.Service && !at.Border && (i == 0 || c.Parent >= 0 && inRoot[c.Parent])
		s := x.known(c.Site)
		if i == 0 && s == nil {
			return true
		}
		if s == nil || !inRoot[i] {
			continue
		}
		if known, unknown := x.split(i); len(unknown) > 0 && !x.maybeUnanswered(i, unknown) {
			if next := s.continuation(known); next.varies() {
				return true
			}
		}
	}
	return false
}

// maybeUnanswered reports whether any of the calls that call i makes to unknown sites lacks an answer that such calls
// normally get. unknown is the second result of split.
func (x *explaining) maybeUnanswered(i int, unknown []int) bool {
	return slices.ContainsFunc(unknown, func(k int) bool {
		site := x.below[i].sites[k]
		return x.rec.Sites[site].Client && silent(&x.rec.Sites[site]) && len(x.answeredSites(site)) > 0
	})
}

// unusual returns the certainty that the shape of a call to sites is unusual at the site of s. It is 0 if the share of
// calls with this shape, or with shapes at most as frequent, is at least rareShare. It is nearly 1 if no call has the
// shape. The share of new shapes is estimated by the share of shapes seen only once (Good and Turing): if every second
// shape at a site is new, the site has no unusual shapes.
func (s *siteProfile) unusual(sites []int32) float64 {
	n, rarer, once := 0, s.others, s.others
	if x := s.shapes[shapeHash(sites)]; x != nil {
		n = x.calls
	}
	for _, x := range s.shapes {
		if x.calls <= n {
			rarer += x.calls
		}
		if x.calls == 1 {
			once++
		}
	}
	if n == 0 {
		rarer = once
	}
	return rarity(rarer, s.calls)
}

// rarity returns the certainty that an event is unusual if it occurs in n of the given number of normal calls. It is 0
// if its share is at least rareShare, and nearly 1 if it occurs in none of many calls.
func rarity(n, calls int) float64 {
	share := float64(n) / float64(calls)
	return max(0, 1-share/rareShare) * float64(calls) / float64(calls+1)
}

// continuation describes the normal calls at a site that make the given calls.
type continuation struct {
	exact, more int           // number of calls that make no other calls, and of calls that do
	next        map[int32]int // by other site: number of the calls in more that call it
}

func (s *siteProfile) continuation(sites []int32) continuation {
	c := continuation{next: make(map[int32]int)}
	for _, x := range s.shapes {
		switch {
		case !containsAll(x.sites, sites):
		case len(x.sites) == len(sites):
			c.exact += x.calls
		default:
			c.more += x.calls
			for _, site := range x.sites {
				if _, ok := slices.BinarySearch(sites, site); !ok {
					c.next[site] += x.calls
				}
			}
		}
	}
	return c
}

// goesOn reports whether calls usually make further calls.
func (c *continuation) goesOn() bool {
	return c.more > 0 && float64(c.exact) <= rareShare*float64(c.exact+c.more)
}

// expected returns the other sites that nearly all calls of c (all but rareShare) call, the most frequent first.
func (x *explaining) expected(c *continuation) []int32 {
	var sites []int32
	for site, n := range c.next {
		if c.expects(n) {
			sites = append(sites, site)
		}
	}
	sorting.Slice(sites, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.next[b], c.next[a]), x.rec.Sites[a].Compare(x.rec.Sites[b].SiteKey))
	})
	return sites
}

// expects reports whether n calls make up nearly all calls of c.
func (c *continuation) expects(n int) bool {
	return float64(n) >= (1-rareShare)*float64(c.exact+c.more)
}

// varies reports whether calls usually make further calls, but no particular call nearly always.
func (c *continuation) varies() bool {
	for _, n := range c.next {
		if c.expects(n) {
			return false
		}
	}
	return c.goesOn()
}

// containsAll reports whether all contains every element of some. Both are ascending.
func containsAll(all, some []int32) bool {
	for _, x := range some {
		i, ok := slices.BinarySearch(all, x)
		if !ok {
			return false
		}
		all = all[i+1:]
	}
	return true
}

// unanswered describes a CLIENT span that lacks an answer although such spans usually have one.
type unanswered struct {
	certainty float64        // 0 if the span has an answer, or if such spans often lack one
	callee    history.Callee // service 0 if unknown
}

// findUnanswered fills x.unanswered.
func (x *explaining) findUnanswered() {
	answers := make([]unanswered, len(x.calls)) // keep x.unanswered empty: split must see the calls as unknown
	used := make(map[[2]int32]bool)
	for i := range x.calls {
		c := &x.calls[i]
		at := &x.rec.Sites[c.Site]
		if c.Site == history.Overflow || !at.Client || at.Border || !silent(at) || c.Parent < 0 {
			continue
		}
		sites := x.answeredSites(c.Site)
		peer := x.names.Peer(at)
		if peer != 0 {
			sites = slices.DeleteFunc(sites, func(site int32) bool { return x.usualCallee(site).Service != peer })
		}
		without, with := 0, 0
		if s := x.known(c.Site); s != nil {
			without = s.calls
		}
		for _, site := range sites {
			with += x.sites[site].calls
		}
		if with < history.MinHistory {
			continue
		}
		u := unanswered{certainty: rarity(without, without+with)}
		switch {
		case u.certainty == 0:
		case peer != 0:
			u.callee = x.usualCallee(sites[0])
		default:
			u.callee = x.silentCallee(i, sites, used)
		}
		if at.Peer == 0 || u.callee.Service != 0 { // otherwise it may be a call to a third party
			answers[i] = u
		}
	}
	x.unanswered = answers
}

// silentCallee returns the callee of call i, which has no answer. It is the usual callee at one of sites: a site that
// most normal calls of the caller call, but this one doesn't. silentCallee adds the caller and the site to used, so
// that it returns each only once. It returns the zero value if there is no such site.
func (x *explaining) silentCallee(i int, sites []int32, used map[[2]int32]bool) history.Callee {
	c := &x.calls[i]
	caller := x.known(x.calls[c.Parent].Site)
	if caller == nil {
		return history.Callee{}
	}
	known, _ := x.split(int(c.Parent))
	known = slices.DeleteFunc(known, func(site int32) bool { return site == c.Site })
	next := caller.continuation(known)
	for _, site := range sites {
		if key := [2]int32{c.Parent, site}; !used[key] && 2*next.next[site] > next.exact+next.more {
			used[key] = true
			return x.usualCallee(site)
		}
	}
	return history.Callee{}
}
