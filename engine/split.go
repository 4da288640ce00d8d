package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of what groups are split by.
const (
	splitSample = 128 // requests of a group that a split is learned from
	splitLogged = 256 // groups that are sampled from a log
	splitWatch  = 16  // groups that are sampled at a time once there is an expectation
	splitEpochs = 30  // epochs over which these are sampled: as long as groups are learned
)

// splitter samples requests of groups, whatever bins they are in.
type splitter struct {
	splits  *explain.Splits
	samples map[analysis.Hash]*stats.Sample[*observation.Observation]
	epochs  int // since the samples were begun
}

func newSplitter() *splitter {
	return &splitter{splits: explain.NewSplits(explain.SplitOptions{})}
}

// begin begins to sample groups.
func (s *splitter) begin(wholes []analysis.Hash) {
	s.samples = make(map[analysis.Hash]*stats.Sample[*observation.Observation], len(wholes))
	for _, whole := range wholes {
		sample := stats.NewSample[*observation.Observation](splitSample)
		s.samples[whole] = &sample
	}
	s.epochs = 0
}

func (s *splitter) observe(whole analysis.Hash, o *observation.Observation) {
	if sample := s.samples[whole]; sample != nil && sample.Wants(o.Key()) {
		sample.Add(o.Key(), o.Clone())
	}
}

// learn judges the groups that were sampled, and returns those whose split changed.
func (s *splitter) learn(table *trace.Table) []analysis.Hash {
	var changed []analysis.Hash
	for _, whole := range slices.SortedFunc(maps.Keys(s.samples), analysis.Hash.Compare) {
		var requests []*observation.Observation
		for _, o := range s.samples[whole].All() {
			requests = append(requests, o)
		}
		if s.splits.Learn(whole, requests, table) {
			changed = append(changed, whole)
		}
	}
	s.samples = nil
	return changed
}

// learnFrom learns splits from requests, which it goes through twice: of groups with a CoV above a level, those with most requests
// first. An error is one of the requests'.
func (s *splitter) learnFrom(requests iter.Seq2[*observation.Observation, error], grouper *group.Grouper, cov float64) error {
	durations := make(map[analysis.Hash]*stats.Moments)
	each := func(observe func(whole analysis.Hash, o *observation.Observation)) error {
		for o, err := range requests {
			if err != nil {
				return err
			}
			_, whole := grouper.Keys.Of(grouper.Types.Of(o), o)
			observe(whole, o)
		}
		return nil
	}
	err := each(func(whole analysis.Hash, o *observation.Observation) {
		m := durations[whole]
		if m == nil {
			m = new(stats.Moments)
			durations[whole] = m
		}
		m.Add(o.Duration.Nanoseconds())
	})
	if err != nil {
		return err
	}
	maps.DeleteFunc(durations, func(_ analysis.Hash, m *stats.Moments) bool { return !(m.CoV() > cov) })
	wholes := slices.SortedFunc(maps.Keys(durations), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(durations[b].N, durations[a].N), a.Compare(b))
	})
	s.begin(wholes[:min(len(wholes), splitLogged)])
	if err := each(s.observe); err != nil {
		return err
	}
	s.learn(grouper.Table)
	return nil
}

// resplit samples groups that are well over some epochs, splits those that one variable explains, and undoes splits that explain
// nothing any more.
func (c *Core) resplit(now trace.Nanos) {
	s := c.splitter
	if s == nil {
		return
	}
	if s.epochs++; s.epochs < splitEpochs {
		return
	}
	for _, whole := range s.learn(c.table) {
		c.detector.Resplit(whole, now)
	}
	s.begin(c.detector.SplitCandidates(splitCoV, splitWatch))
}

// splitCoV is the CoV above which a group that is well is worth being split: from which it would be a chronic problem.
var splitCoV = detect.DefaultThresholds().CoV
