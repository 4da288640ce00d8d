package live

import "time"

// Lag tells by how much decisions are late.
type Lag struct {
	Overdue time.Duration // since the next epoch should have ended; at least 0
	Cause   LagCause
	Work    time.Duration // spent on decisions in the last epoch, or so far in the present one if that is more
}

// LagCause is the probable cause of late decisions.
type LagCause uint8

const (
	// LagNone means that decisions are at most lateEpochs behind.
	LagNone LagCause = iota
	// LagSpace means that no epoch ends for lack of space on the disk.
	LagSpace
	// LagDecisions means that the decisions of an epoch take longer than the epoch.
	LagDecisions
	// LagAnalysis means that requests arrive faster than they are analysed.
	LagAnalysis
)

// lateEpochs is the number of epochs that decisions may be overdue.
const lateEpochs = 2

// Lag returns by how much decisions are late. After a start, epochs are expected from then on. Lag is safe for
// concurrent use.
func (s *Service) Lag() Lag {
	if !s.Ready() {
		return Lag{}
	}
	now, length, n := s.options.Clock(), s.options.Core.Epoch, &s.counts
	lag := Lag{Work: time.Duration(n.Decided.Load())}
	if began := n.deciding.Load(); began != 0 {
		lag.Work = max(lag.Work, now.Sub(time.Unix(0, began)))
	}
	last := max(n.ended.Load(), s.began.Load())
	lag.Overdue = max(0, now.Sub(time.Unix(0, last))-length)
	switch {
	case lag.Overdue <= lateEpochs*length:
	case s.Space() == SpaceNone:
		lag.Cause = LagSpace
	case lag.Work > length:
		lag.Cause = LagDecisions
	default:
		lag.Cause = LagAnalysis
	}
	return lag
}
