package group

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Expectation is the performance of a group while it is well, once it is learned, and the requests of the open epoch held against it.
type Expectation struct {
	Learned   bool
	Reference stats.Reference
	Size      *SizeModel      // if the group is judged by size: of the requests of Reference, which then describes durations adjusted for size
	Counts    stats.Counts    // of the open epoch
	Blocks    []stats.Moments // the logarithms of the durations of the next reference, epoch by epoch
	Healthy   int             // epochs in the next reference
	Mix       *Mix            // of a request type; nil while none is learned
	Number    int             // of a group: its number in the Mix of its type
}

// Mix is the expected mix of the groups of a request type, and the requests of the open epoch. Its numbers stand for groups, but for
// those of the groups without a number of their own, and of the requests that failed.
type Mix struct {
	Reference stats.MixReference
	Expected  []uint64 // requests of the learning period, by number
	Open      []uint64 // requests of the open epoch, by number
	Numbers   map[analysis.Hash]int
}

// The first numbers in the mix of a request type; those of its groups follow.
const (
	mixOthers = iota // requests of all groups without a number
	mixFailed        // requests that failed, whatever their group
)

// Bounds on the numbers of a Mix: the proportions of rarer groups are watched together.
const (
	MinMixNumbers = mixFailed + 1
	MaxMixNumbers = 64
)

// Bounds on blocks: of a group that is not learned yet (there are more only of rare groups, and of those that wait for a problem to be
// over), and of the next reference of one that is.
const (
	MaxBlocks  = 512
	nextBlocks = 32
)

// count adds a request of the open epoch.
func (e *Expectation) count(duration int64) {
	if e.Learned {
		e.Counts.Add(&e.Reference, duration)
	}
}

// count adds a request of the open epoch: the number of its group, and whether it failed. M may be nil.
func (m *Mix) count(number int, failed bool) {
	switch {
	case m == nil:
	case failed:
		m.Open[mixFailed]++
	default:
		m.Open[number]++
	}
}

// endEpoch takes in the requests of an epoch, if they are not held against an expectation.
func (e *Expectation) endEpoch(open *Window) {
	if !e.Learned {
		e.Blocks = addBlock(e.Blocks, open.Latency.Logs(), MaxBlocks)
	}
}

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

// Learn makes the window that is judged the group's expectation, and restarts it.
func (group *Group) Learn(tests stats.TestOptions) {
	group.Expectation.Learned = true
	group.expect(&group.Current, tests)
	group.Expectation.Blocks = nil
	group.Reference.absorb(&group.Current, group.options.Edges)
	group.RestartWindow()
}

// expect makes a window the reference of tests. If requests have sizes the reference is of durations adjusted for these, of which there is
// a sample only: the tests are the more cautious.
func (group *Group) expect(window *Window, tests stats.TestOptions) {
	e := &group.Expectation
	latency := window.Latency
	if e.Size = window.sizeModel(group.sizing.timeout); e.Size != nil {
		latency = e.Size.distribution(&window.Transfers)
	}
	e.Reference = stats.NewReference(&latency, e.Blocks, tests)
}

// Absorb makes the window that is judged, of a group that is well, part of its reference and of the next one, and restarts it. After
// renew epochs with at least minSamples requests the next reference becomes the expectation: then it returns true.
func (group *Group) Absorb(renew int, minSamples uint64, tests stats.TestOptions) (renewed bool) {
	e := &group.Expectation
	if group.Current.Total.N == 0 {
		return false
	}
	group.Reference.absorb(&group.Current, group.options.Edges)
	group.next.absorb(&group.Current, group.options.Edges)
	e.Blocks = addBlock(e.Blocks, group.Current.Latency.Logs(), nextBlocks)
	group.RestartWindow()
	if e.Healthy++; e.Healthy < renew || group.next.Total.N < minSamples {
		return false
	}
	group.expect(&group.next, tests)
	group.Reference = group.next
	group.next = Window{}
	group.next.Reset(group.options.Sample)
	e.Blocks, e.Healthy = nil, 0
	return true
}

// LearnMix makes the proportions of the groups of a request type in the window that is judged its expectation. Groups with fewer requests
// than minSamples get no number.
func (group *Group) LearnMix(groups []*Group, minSamples uint64, tests stats.TestOptions) {
	m := &Mix{Numbers: make(map[analysis.Hash]int)}
	requests := []uint64{mixOthers: 0, mixFailed: group.Current.Failed}
	for _, x := range slices.SortedFunc(slices.Values(groups), frequentFirst) {
		n := x.Current.Total.N - x.Current.Failed
		if len(requests) < MaxMixNumbers && x.Current.Total.N >= minSamples {
			x.Expectation.Number = len(requests)
			m.Numbers[x.ID] = len(requests)
			requests = append(requests, n)
		} else {
			x.Expectation.Number = mixOthers
			requests[mixOthers] += n
		}
	}
	m.Reference = stats.NewMixReference(requests, len(group.Expectation.Blocks), tests)
	m.Expected, m.Open = requests, make([]uint64, len(requests))
	group.Expectation.Mix = m
}

func frequentFirst(a, b *Group) int {
	return cmp.Or(cmp.Compare(b.Current.Total.N, a.Current.Total.N), a.ID.Compare(b.ID))
}

// Unlearn forgets the expectation of the group and every request from before now.
func (group *Group) Unlearn(now trace.Nanos) {
	group.Expectation = Expectation{Number: group.Expectation.Number}
	group.Since = now
	group.RestartWindow()
	group.Reference.Reset(group.options.Sample)
	group.next.Reset(group.options.Sample)
}

// LearnFrom makes a group without an expectation learn from now on only.
func (group *Group) LearnFrom(now trace.Nanos) {
	group.Expectation.Blocks = nil
	group.Since = now
}
