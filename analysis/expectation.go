package analysis

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// The first numbers in the mix of a request type; those of its groups follow.
const (
	mixOthers = iota // requests of all groups without a number
	mixFailed        // requests that failed, whatever their group
)

// mixGroups bounds the groups of a request type whose proportions are watched one by one; the rarer ones are watched together.
const mixGroups = 64

// Bounds on blocks: of a group that is not learned yet (there are more only of rare groups, and of those that wait for a problem to be
// over), and of the next reference of one that is.
const (
	maxBlocks  = 512
	nextBlocks = 32
)

// addBlock adds the logarithms of the durations of an epoch. Beyond the bound blocks are merged in pairs: wider ones tell as much.
func addBlock(blocks []stats.Moments, m stats.Moments, bound int) []stats.Moments {
	if len(blocks) == bound {
		for i := range bound / 2 {
			blocks[i] = blocks[2*i]
			blocks[i].Merge(blocks[2*i+1])
		}
		blocks = blocks[:bound/2]
	}
	return append(blocks, m)
}

// Learn takes what is judged so far as the expectation of every group that has none yet, whose first epoch ended by the given time,
// and that has enough requests. Nothing is learned of request types with an open problem.
func (g *Grouper) Learn(by trace.Nanos, o WatchOptions) {
	for requestType, groups := range g.byType() {
		if requestType.watch.troubled {
			continue
		}
		if g.ready(requestType, by, o) {
			g.learnMix(requestType, groups, o)
			g.learn(requestType, o)
		}
		for _, group := range groups {
			if g.ready(group, by, o) {
				g.learn(group, o)
			}
		}
	}
}

func (g *Grouper) ready(group *Group, by trace.Nanos, o WatchOptions) bool {
	return !group.watch.learned && group.Current.Total.N >= o.MinSamples && group.Since <= by
}

// learn makes what is judged of a group its expectation.
func (g *Grouper) learn(group *Group, o WatchOptions) {
	w := &group.watch
	w.learned = true
	group.expect(&group.Current, o)
	w.blocks = nil
	group.Reference.absorb(&group.Current, g.options.Edges)
	g.judgeAnew(group)
}

// expect makes a window the reference of tests. Where requests have sizes that is of durations adjusted for these, of which there is a
// sample only: the tests are the more cautious.
func (group *Group) expect(window *Window, o WatchOptions) {
	w := &group.watch
	latency := window.Latency
	if w.size = window.sizeModel(group.sizing.timeout); w.size != nil {
		latency = w.size.distribution(&window.Transfers)
	}
	w.reference = stats.NewReference(&latency, w.blocks, o.Tests)
}

// absorb makes what is judged of a group that is well part of its reference, and of the next one.
func (g *Grouper) absorb(group *Group, o WatchOptions) {
	w := &group.watch
	if group.Current.Total.N == 0 {
		return
	}
	group.Reference.absorb(&group.Current, g.options.Edges)
	group.next.absorb(&group.Current, g.options.Edges)
	w.blocks = addBlock(w.blocks, group.Current.Latency.Logs(), nextBlocks)
	g.judgeAnew(group)
	if w.healthy++; w.healthy < o.Renew || group.next.Total.N < o.MinSamples {
		return
	}
	group.expect(&group.next, o)
	group.Reference = group.next
	group.next = Window{}
	group.next.Reset(g.options.Sample)
	w.blocks, w.recent, w.healthy = nil, nil, 0
}

// learnMix takes the proportions of the groups of requestType as its expectation.
func (g *Grouper) learnMix(requestType *Group, groups []*Group, o WatchOptions) {
	w := &requestType.watch
	w.numbers = make(map[Hash]int)
	requests := []uint64{mixOthers: 0, mixFailed: requestType.Current.Failed}
	for _, group := range slices.SortedFunc(slices.Values(groups), frequentFirst) {
		n := group.Current.Total.N - group.Current.Failed
		if len(requests) < mixGroups && group.Current.Total.N >= o.MinSamples {
			group.watch.number = len(requests)
			w.numbers[group.ID] = len(requests)
			requests = append(requests, n)
		} else {
			group.watch.number = mixOthers
			requests[mixOthers] += n
		}
	}
	w.mixReference = stats.NewMixReference(requests, len(w.blocks), o.Tests)
	w.expectedMix, w.mixed = requests, make([]uint64, len(requests))
}

func frequentFirst(a, b *Group) int {
	return cmp.Or(cmp.Compare(b.Current.Total.N, a.Current.Total.N), a.ID.Compare(b.ID))
}

// Accept makes g forget what it expects of a group, or of a request type and all its groups, and close its problem: what comes from
// time now on, over a learning period, is the new expectation. It reports whether there is such a group.
func (g *Grouper) Accept(id Hash, now trace.Nanos) bool {
	accepted := g.groups[id]
	if accepted == nil {
		return false
	}
	for _, group := range g.all() {
		if group == accepted || group.parent == accepted {
			group.watch = watch{number: group.watch.number, troubled: group.watch.troubled}
			group.Since = now
			g.judgeAnew(group)
			group.Reference.Reset(g.options.Sample)
			group.next.Reset(g.options.Sample)
		}
	}
	return true
}
