package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of the groups that are split after the learning period.
const (
	splitWatch  = 16 // groups that are sampled at a time
	splitEpochs = 30 // epochs over which they are sampled: as long as groups are learned
)

// splitCoV is the CoV above which a group without a problem is split: the level of a chronic problem.
var splitCoV = detect.DefaultThresholds().CoV

// splitter learns splits while the core runs.
type splitter struct {
	*explain.SplitLearner
	epochs int // since the samples were started
}

// endEpoch splits groups without a problem that one variable explains, and undoes splits that no longer explain
// anything. It judges the samples of several epochs, then samples other groups. A nil splitter does nothing.
func (s *splitter) endEpoch(now trace.Nanos, table *trace.Table, detector *detect.Detector) {
	if s == nil {
		return
	}
	if s.epochs++; s.epochs < splitEpochs {
		return
	}
	for _, whole := range s.Learn(table) {
		detector.Resplit(whole, now)
	}
	s.Watch(detector.SplitCandidates(splitCoV, splitWatch))
	s.epochs = 0
}

// save implements section.
func (s *splitter) save(saved *savedCore) {
	if s == nil {
		return
	}
	saved.Splits, saved.SplitEpochs = s.Splits.AppendBinary(nil), s.epochs
	for id, data := range s.EncodedSamples() {
		saved.SplitSamples = append(saved.SplitSamples, savedPart{id, data})
	}
}

// restore implements section.
func (s *splitter) restore(saved *savedCore) error {
	if s == nil || saved.Splits == nil {
		return nil
	}
	splits, _, err := explain.DecodeSplits(saved.Splits, explain.SplitOptions{})
	if err != nil {
		return err
	}
	s.Splits, s.epochs = splits, saved.SplitEpochs
	s.Watch(nil)
	for _, x := range saved.SplitSamples {
		if err := s.DecodeSample(x.ID, x.Data); err != nil {
			return err
		}
	}
	return nil
}
