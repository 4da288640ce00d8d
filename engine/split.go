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

// resplit splits groups without a problem that one variable explains, and undoes splits that no longer explain
// anything. It judges the samples of several epochs, then samples other groups.
func (c *Core) resplit(now trace.Nanos) {
	s := c.splitter
	if s == nil {
		return
	}
	if s.epochs++; s.epochs < splitEpochs {
		return
	}
	for _, whole := range s.Learn(c.table) {
		c.detector.Resplit(whole, now)
	}
	s.Watch(c.detector.SplitCandidates(splitCoV, splitWatch))
	s.epochs = 0
}
