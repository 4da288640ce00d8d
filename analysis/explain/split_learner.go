package explain

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of a [SplitLearner].
const (
	splitSample = 128 // requests per group
	splitGroups = 256 // groups in LearnFrom
)

// SplitLearner samples the requests of groups in all bins, and learns splits from the samples. It is not safe for
// concurrent use.
type SplitLearner struct {
	Splits  *Splits
	samples map[analysis.Hash]*stats.Sample[*observation.Observation] // by group
}

// NewSplitLearner returns a SplitLearner without splits that samples no group.
func NewSplitLearner() *SplitLearner { return &SplitLearner{Splits: NewSplits(SplitOptions{})} }

// Watch drops the samples and starts samples of the given groups.
func (l *SplitLearner) Watch(groups []analysis.Hash) {
	l.samples = make(map[analysis.Hash]*stats.Sample[*observation.Observation], len(groups))
	for _, id := range groups {
		sample := stats.NewSample[*observation.Observation](splitSample)
		l.samples[id] = &sample
	}
}

// Observe samples a request of a group, given the identity without bins. It does not retain o.
func (l *SplitLearner) Observe(group analysis.Hash, o *observation.Observation) {
	if sample := l.samples[group]; sample != nil && sample.Accepts(o.Key()) {
		sample.Add(o.Key(), o.Clone())
	}
}

// Learn updates the splits of the sampled groups, drops the samples, and returns the groups whose split changed,
// ascending.
func (l *SplitLearner) Learn(table *trace.Table) []analysis.Hash {
	var changed []analysis.Hash
	for _, id := range slices.SortedFunc(maps.Keys(l.samples), analysis.Hash.Compare) {
		var requests []*observation.Observation
		for _, o := range l.samples[id].All() {
			requests = append(requests, o)
		}
		if l.Splits.Learn(id, requests, table) {
			changed = append(changed, id)
		}
	}
	l.samples = nil
	return changed
}

// LearnFrom learns splits from requests in two passes: first it finds the groups with a CoV above cov, then it samples
// those with the most requests. It returns the first error of requests.
func (l *SplitLearner) LearnFrom(requests iter.Seq2[*observation.Observation, error], grouper *group.Grouper, cov float64) error {
	durations := make(map[analysis.Hash]*stats.Moments)
	each := func(observe func(id analysis.Hash, o *observation.Observation)) error {
		for o, err := range requests {
			if err != nil {
				return err
			}
			_, whole := grouper.Keys.Of(grouper.Types.Of(o), o)
			observe(whole, o)
		}
		return nil
	}
	err := each(func(id analysis.Hash, o *observation.Observation) {
		m := durations[id]
		if m == nil {
			m = new(stats.Moments)
			durations[id] = m
		}
		m.Add(o.Duration.Nanoseconds())
	})
	if err != nil {
		return err
	}
	maps.DeleteFunc(durations, func(_ analysis.Hash, m *stats.Moments) bool { return !(m.CoV() > cov) })
	groups := slices.SortedFunc(maps.Keys(durations), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(durations[b].N, durations[a].N), a.Compare(b))
	})
	l.Watch(groups[:min(len(groups), splitGroups)])
	if err := each(l.Observe); err != nil {
		return err
	}
	l.Learn(grouper.Table)
	return nil
}

// EncodedSamples yields the samples in the encoding of [SplitLearner.DecodeSample], ascending by group.
func (l *SplitLearner) EncodedSamples() iter.Seq2[analysis.Hash, []byte] {
	return func(yield func(analysis.Hash, []byte) bool) {
		for _, id := range slices.SortedFunc(maps.Keys(l.samples), analysis.Hash.Compare) {
			if !yield(id, l.samples[id].AppendBinary(nil, observation.AppendObservation)) {
				return
			}
		}
	}
}

// DecodeSample sets the sample of a group to one from [SplitLearner.EncodedSamples]. Errors wrap codec.ErrCorrupt.
func (l *SplitLearner) DecodeSample(group analysis.Hash, b []byte) error {
	sample, _, err := stats.DecodeSample(b, observation.DecodeObservation)
	if err != nil {
		return err
	}
	l.samples[group] = &sample
	return nil
}
