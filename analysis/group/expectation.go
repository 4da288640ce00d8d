package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Expectation is the performance of a healthy group, once it is learned, and the counts that compare the open epoch
// with it.
type Expectation struct {
	Learned   bool
	Reference stats.Reference
	// Size is the size model of the requests, or nil if they are not judged by size. If it is not nil, Reference
	// describes durations adjusted for size.
	Size    *SizeModel
	Counts  stats.Counts    // of the open epoch
	Blocks  []stats.Moments // logarithms of the durations of the next reference, by epoch
	Healthy int             // epochs in the next reference
	Mix     *Mix            // of a request type; nil until it is learned
	Number  int             // of a group: its number in the Mix of its type
}

// Mix is the expected mix of the groups of a request type, with the counts of the open epoch. Each number stands for
// one group, for all groups without a number, or for failed requests.
type Mix struct {
	Reference stats.MixReference
	Expected  []uint64 // requests of the learning period, by number
	Open      []uint64 // requests of the open epoch, by number
	Numbers   map[analysis.Hash]int
	Next      MixCounts // counts for the mix that will replace this one
}

// FailsMore reports whether the requests in now failed more often than expected.
func (m *Mix) FailsMore(now *MixCounts) bool {
	return m.Reference.Exceeds(mixFailed, now.Failed, now.Requests())
}

// MixCounts counts the requests of a request type by group. The zero value is empty.
type MixCounts struct {
	Epochs int                      // epochs with requests
	Failed uint64                   // failed requests, whatever their group
	Groups map[analysis.Hash]uint64 // requests that did not fail
}

// Add adds the requests of requestType and its groups in the open epoch.
func (c *MixCounts) Add(requestType *Group, groups []*Group) {
	c.Epochs++
	c.add(requestType, groups, func(g *Group) *Window { return &g.Open })
}

func (c *MixCounts) add(requestType *Group, groups []*Group, window func(*Group) *Window) {
	c.Failed += window(requestType).Failed
	if c.Groups == nil {
		c.Groups = make(map[analysis.Hash]uint64)
	}
	for _, g := range groups {
		if w := window(g); w.Total.N > w.Failed {
			c.Groups[g.ID] += w.Total.N - w.Failed
		}
	}
}

// Requests returns the number of all requests.
func (c *MixCounts) Requests() uint64 {
	n := c.Failed
	for _, k := range c.Groups {
		n += k
	}
	return n
}

// The first numbers of a Mix. Numbers of groups follow.
const (
	mixOthers = iota // requests of all groups without a number
	mixFailed        // requests that failed, whatever their group
)

// Limits on the count of numbers in a Mix. Rarer groups share a number, so that only their sum is tested.
const (
	MinMixNumbers = mixFailed + 1
	MaxMixNumbers = 64
)

const (
	// MaxBlocks is the maximum number of blocks of a group that has not been learned. Only rare groups, and groups that
	// wait for the end of a problem, reach it.
	MaxBlocks = 512
	// nextBlocks is the maximum number of blocks of the next reference of a learned group.
	nextBlocks = 32
)

// count adds a request of the open epoch to the count of its group or, if it failed, to the count of failed requests. m
// may be nil.
func (m *Mix) count(number int, failed bool) {
	switch {
	case m == nil:
	case failed:
		m.Open[mixFailed]++
	default:
		m.Open[number]++
	}
}

// endEpoch adds open, the requests of an epoch, to the blocks of a group that has not been learned.
func (e *Expectation) endEpoch(open *Window) {
	if !e.Learned {
		e.Blocks = addBlock(e.Blocks, open.Latency.Logs(), MaxBlocks)
	}
}

// addBlock appends m, the logarithms of the durations of an epoch, to blocks. If there are already `bound` blocks, it
// first merges them in pairs, because the width of blocks hardly matters.
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

// Learn makes the current window the expectation of the group, and restarts the window.
func (group *Group) Learn(tests stats.TestOptions) {
	group.Expectation.Learned = true
	group.expect(&group.Current, tests)
	group.Expectation.Blocks = nil
	group.Reference.mergeSums(&group.Current, group.options.Edges)
	group.RestartWindow()
}

// expect makes window the reference of the tests. If requests have sizes, the reference holds durations adjusted for
// size. The tests are then less sensitive, because sizes are known only for the sample.
func (group *Group) expect(window *Window, tests stats.TestOptions) {
	e := &group.Expectation
	latency := window.Latency
	if e.Size = window.sizeModel(group.sizeRule.timeout); e.Size != nil {
		latency = e.Size.distribution(&window.Transfers)
	}
	e.Reference = stats.NewReference(&latency, e.Blocks, tests)
}

// Proving is the time that a group must remain healthy before its earlier requests become part of the reference. They
// become part of it after at most twice that time. No incident opens later than that after its onset, except incidents
// that grow for hours.
const Proving = 6 * time.Minute

// prove adds the first half of the unproven requests to the references, if the second half covers enough time.
func (group *Group) prove(now trace.Nanos) {
	if now.Sub(group.halfway) < Proving {
		return
	}
	group.halfway = now
	w := &group.unproven[0]
	if w.Total.N > 0 {
		group.Reference.mergeSums(w, group.options.Edges)
		group.nextReference.mergeSums(w, group.options.Edges)
		group.revision++
	}
	w.Reset(group.options.Sample)
	group.unproven[0], group.unproven[1] = group.unproven[1], group.unproven[0]
}

// Unlearn forgets the requests of healthy epochs after since, and shortly before, unless they are already part of the
// reference. Call it when an incident turns out to have started at since.
func (group *Group) Unlearn(since trace.Nanos) {
	for i := range group.unproven {
		if w := &group.unproven[i]; w.Total.N > 0 && w.Last > since {
			w.Reset(group.options.Sample)
		}
	}
}

// UpdateReference restarts the current window of a healthy group. Once the requests of that window are proven, they
// become part of the reference and of the next reference. After renew epochs with at least minSamples requests, the
// next reference becomes the expectation, and UpdateReference returns true.
func (group *Group) UpdateReference(
	now trace.Nanos, renew int, minSamples uint64, tests stats.TestOptions,
) (renewed bool) {
	e := &group.Expectation
	if group.Current.Total.N == 0 {
		return false
	}
	group.prove(now)
	group.unproven[1].mergeSums(&group.Current, group.options.Edges)
	e.Blocks = addBlock(e.Blocks, group.Current.Latency.Logs(), nextBlocks)
	group.RestartWindow()
	if e.Healthy++; e.Healthy < renew || group.nextReference.Total.N < minSamples {
		return false
	}
	group.expect(&group.nextReference, tests)
	group.Reference = group.nextReference
	group.nextReference = Window{}
	group.nextReference.Reset(group.options.Sample)
	e.Blocks, e.Healthy = nil, 0
	return true
}

// JudgedMix counts the requests in the current windows of group and its groups. group must be a request type that has
// not been learned.
func (group *Group) JudgedMix(groups []*Group) MixCounts {
	c := MixCounts{Epochs: len(group.Expectation.Blocks)}
	c.add(group, groups, func(g *Group) *Window { return &g.Current })
	return c
}

// LearnMix makes the proportions of the groups in c the expected mix of a request type. Groups with fewer than
// minSamples requests get no number.
func (group *Group) LearnMix(c MixCounts, groups []*Group, minSamples uint64, tests stats.TestOptions) {
	m := &Mix{Numbers: make(map[analysis.Hash]int)}
	requests := []uint64{mixOthers: c.Requests() - c.Failed, mixFailed: c.Failed}
	frequentFirst := func(a, b *Group) int {
		return cmp.Or(cmp.Compare(c.Groups[b.ID], c.Groups[a.ID]), a.ID.Compare(b.ID))
	}
	for _, x := range sorting.Sorted(slices.Values(groups), frequentFirst) {
		n := c.Groups[x.ID]
		if len(requests) < MaxMixNumbers && n >= minSamples {
			x.Expectation.Number = len(requests)
			m.Numbers[x.ID] = len(requests)
			requests = append(requests, n)
			requests[mixOthers] -= n
		} else {
			x.Expectation.Number = mixOthers
		}
	}
	m.Reference = stats.NewMixReference(requests, c.Epochs, tests)
	m.Expected, m.Open = requests, make([]uint64, len(requests))
	group.Expectation.Mix = m
}

// Relearn forgets the expectation of the group and all requests before now, and starts learning again.
func (group *Group) Relearn(now trace.Nanos) {
	group.Expectation = Expectation{Number: group.Expectation.Number}
	group.Since = now
	group.RestartWindow()
	for _, w := range []*Window{&group.Reference, &group.nextReference, &group.unproven[0], &group.unproven[1]} {
		w.Reset(group.options.Sample)
	}
}

// LearnFrom restarts the learning of a group at now. The group must not have an expectation.
func (group *Group) LearnFrom(now trace.Nanos) {
	group.Expectation.Blocks = nil
	group.Since = now
}
