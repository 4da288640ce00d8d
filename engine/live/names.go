package live

import (
	"log/slog"

	"github.com/sibyl-trace/sibyl/trace"
)

// renewNames starts a new period of the core's dictionary. It keeps the names in stored decisions, because people may
// still read those decisions.
func (l *loop) renewNames(now trace.Nanos) {
	deleted, err := l.core.RenewNames(now, l.options.Store.Decisions.Encoded())
	l.counts.Names.Add(int64(deleted))
	if err != nil {
		l.options.Log.Error("no names were deleted, since the stored decisions could not be read",
			slog.Any("error", err))
	}
}
