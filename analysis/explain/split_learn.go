package explain

import (
	"cmp"
	"iter"
	"maps"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Limits on [LearnSplits].
const (
	splitSample = 128 // requests per group
	splitGroups = 256 // groups
)

// LearnSplits learns splits from requests in two passes: first it finds the groups with a CoV above cov, then it
// samples the most frequent of these groups, in all bins. It returns the first error that requests yields.
func LearnSplits(
	requests iter.Seq2[*observation.Observation, error], grouper *group.Grouper, cov float64,
) (*Splits, error) {
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
		return nil, err
	}
	maps.DeleteFunc(durations, func(_ analysis.Hash, m *stats.Moments) bool { return !(m.CoV() > cov) })
	groups := sorting.Sorted(maps.Keys(durations), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(durations[b].N, durations[a].N), a.Compare(b))
	})
	groups = groups[:min(len(groups), splitGroups)]
	samples := make(map[analysis.Hash]*stats.Sample[*observation.Observation], len(groups))
	for _, id := range groups {
		sample := stats.NewSample[*observation.Observation](splitSample)
		samples[id] = &sample
	}
	if err := each(func(id analysis.Hash, o *observation.Observation) {
		if sample := samples[id]; sample != nil && sample.Accepts(o.Key()) {
			sample.Add(o.Key(), o.Clone())
		}
	}); err != nil {
		return nil, err
	}
	splits := NewSplits()
	for _, id := range groups {
		var sampled []*observation.Observation
		for _, o := range samples[id].All() {
			sampled = append(sampled, o)
		}
		splits.Learn(id, sampled, grouper.Table)
	}
	return splits, nil
}
