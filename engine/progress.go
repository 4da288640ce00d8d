package engine

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Progress reports how much of normal behaviour a core has learned, and when it will judge each kind of change.
type Progress struct {
	learning *learning
	sites    *history.Sites
	ended    trace.Nanos   // end of the last epoch
	period   time.Duration // length of the learning period
}

// Learned reports whether the learning period is over. There are no problems before that.
func (p Progress) Learned() bool { return p.learning.over }

// Dropped returns the number of requests dropped in the learning period because there were too many.
func (p Progress) Dropped() uint64 { return p.learning.dropped }

// Part returns the elapsed fraction of the learning period, from 0 to 1, or NaN before the first request.
func (p Progress) Part() float64 {
	switch {
	case p.learning.over:
		return 1
	case p.learning.began == 0:
		return math.NaN()
	}
	return min(1, max(0, p.learning.elapsed(p.ended, p.sites).Seconds()/p.period.Seconds()))
}

// LearningLeft returns how much longer requests must arrive until the learning period ends, or 0 if it has ended.
func (p Progress) LearningLeft() time.Duration {
	if p.learning.over {
		return 0
	}
	return max(0, p.period-p.learning.elapsed(p.ended, p.sites))
}

// Watching reports whether incidents are reported, that is, whether the history of calls is long enough.
func (p Progress) Watching() bool { return incident.Ready(p.ended, p.sites) }

// WatchingLeft returns how much longer requests must arrive until incidents are reported, or 0 if they already are.
func (p Progress) WatchingLeft() time.Duration { return incident.Left(p.ended, p.sites) }

// Silent reports whether requests have been missing for so long that an incident would close.
func (p Progress) Silent() bool { return incident.Silent(p.ended, p.sites) }

// SilenceLeft returns how much longer requests must arrive until Sibyl would notice if they stopped. It is 0 if Sibyl
// already would, and before the first request. A recorded past that arrived at once counts as time covered.
func (p Progress) SilenceLeft() time.Duration {
	since := p.sites.Requests.Since()
	if since == 0 {
		return 0
	}
	return max(0, incident.SilenceAfter-p.ended.Sub(since))
}

// OperationsLeft returns how much longer requests must arrive until individual operations are judged. It is 0 if they
// already are, and before the first request.
func (p Progress) OperationsLeft() time.Duration { return p.knownLeft(incident.OperationsAfter) }

// GrowthLeft is like [Progress.OperationsLeft], but for changes that take days.
func (p Progress) GrowthLeft() time.Duration { return p.knownLeft(incident.GrowthAfter) }

func (p Progress) knownLeft(after time.Duration) time.Duration {
	if p.learning.began == 0 {
		return 0
	}
	return max(0, after-p.ended.Sub(p.learning.began))
}

// Provisional returns the instances that have differed from their siblings throughout the history. Sibyl may have been
// started during an incident, so they may be unhealthy. It returns nil once changes that take days are judged.
func (p Progress) Provisional() []compare.UnequalInstance {
	if p.GrowthLeft() == 0 {
		return nil
	}
	return compare.Unequal(p.sites, p.ended)
}
