package live

import "time"

// Lag is the delay of the decisions, with its probable cause.
type Lag struct {
	Overdue time.Duration // time since the next epoch should have ended; at least 0
	Cause   LagCause
	Work    time.Duration // time spent on the last epoch's decisions, or so far on the current ones if that is more
}

// LagCause is the probable cause of late decisions.
type LagCause uint8

const (
	// LagNone means that decisions are at most lateEpochs behind.
	LagNone LagCause = iota
	// LagSpace means that epochs don't end because the disk is full.
	LagSpace
	// LagDecisions means that the decisions of an epoch take longer than the epoch.
	LagDecisions
	// LagAnalysis means that requests arrive faster than they can be analysed.
	LagAnalysis
)

// lateEpochs is the number of epochs that decisions may be overdue without counting as late.
const lateEpochs = 2

// Lag returns the delay of the decisions, or the zero value before the service is ready. Epochs are expected from the
// time it became ready. Lag is safe for concurrent use.
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
