package live

import "log/slog"

// Space is a level of free disk space, which determines the work that continues.
type Space uint8

const (
	// SpaceEnough means that all work continues.
	SpaceEnough Space = iota
	// SpaceLow means that requests are refused.
	SpaceLow
	// SpaceNone means that epochs don't end either, so nothing is judged.
	SpaceNone
)

// String returns the name of s in the API.
func (s Space) String() string { return [...]string{"enough", "low", "none"}[s] }

// Space returns the current level of free disk space. It is safe for concurrent use.
func (s *Service) Space() Space {
	switch now := s.options.Clock(); {
	case !s.options.Fits(now, 0):
		return SpaceNone
	case s.options.Full(now) || s.overfull.Load():
		return SpaceLow
	}
	return SpaceEnough
}

// watchSpace updates q.overfull, which makes the service refuse requests while the journal exceeds its limit. It logs
// when space or memory runs out and when there is enough again.
func (q *sequencer) watchSpace() {
	overfull := q.options.MaxJournal > 0 && q.options.Journal.Stats().Bytes > q.options.MaxJournal
	if q.overfull.Swap(overfull) != overfull {
		q.logRefusing(overfull, "the journal has reached journal.max-bytes")
	}
	now := q.options.Clock()
	if full := q.options.Full(now); full != q.full {
		q.full = full
		q.logRefusing(full, "the disk is full")
	}
	if full := q.intake.heap.full(); full != q.memory {
		q.memory = full
		q.logRefusing(full, "the memory is used up")
	}
	if spent := !q.options.Fits(now, 0); spent != q.spent {
		q.spent = spent
		if spent {
			q.options.Log.Warn("nothing is judged for lack of space",
				slog.String("reason", "the reserve of the disk is used up"))
		} else {
			q.options.Log.Info("requests are judged again")
		}
	}
}

func (q *sequencer) logRefusing(refusing bool, why string) {
	if refusing {
		q.options.Log.Warn("requests are refused for lack of space", slog.String("reason", why))
	} else {
		q.options.Log.Info("requests are accepted again", slog.String("resolved", why))
	}
}

// checkpointCopies is the number of copies of the last checkpoint that must fit on the disk to store the next one. The
// database writes the next checkpoint to its log and again to its files before it removes the previous one.
const checkpointCopies = 3

// fits reports whether the disk has room for a checkpoint. It logs a warning when there is no longer room.
func (l *loop) fits() bool {
	last, err := l.options.Store.Checkpoints.Size()
	if err != nil {
		l.options.Log.Error("the size of the last checkpoint could not be read", slog.Any("error", err))
	}
	fits := l.options.Fits(l.options.Clock(), checkpointCopies*last)
	if !fits && !l.cramped {
		l.options.Log.Warn("no checkpoint is stored for lack of space: a restart will read more of the journal",
			slog.Uint64("bytes_needed", checkpointCopies*last))
	}
	l.cramped = !fits
	return fits
}
