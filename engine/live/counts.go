package live

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// Counts says what happened since the start. It is safe for concurrent use.
type Counts struct {
	Requests atomic.Int64 // export requests
	Spans    atomic.Int64 // taken
	Rejected atomic.Int64 // spans left out of requests that were taken
	Packed   atomic.Int64 // bytes of what was appended to the journal
	Damaged  atomic.Int64 // records of the journal that could not be read again
	Refused  struct {
		Busy, Full atomic.Int64 // requests
	}
	Closed  [assemble.CloseReasons]atomic.Int64 // traces, by reason
	Commits atomic.Int64                        // to the journal
	Waited  atomic.Int64                        // ns, for these

	Epochs, Checkpoints, Unsaved atomic.Int64                                // ended; taken; could not be taken
	Decided, ExemplarsLate       atomic.Int64                                // ns that the last epoch's end took; exemplars that could not be kept
	Forgotten                    struct{ Decisions, Exemplars atomic.Int64 } // epochs and requests, to make room
	Ticks                        atomic.Int64                                // times that the clock was looked at

	mu        sync.Mutex                             // guards unusables
	unusables map[trace.Reason]int64                 // roots, or traces, that entered no statistics
	open      []atomic.Pointer[assemble.OnlineStats] // by shard; nil: not told yet
}

// Queue is what waits in one place of the service.
type Queue struct {
	Name         string
	Length, Most int64
}

// Queues returns what waits where, now. It is safe for concurrent use.
func (s *Service) Queues() []Queue {
	all := []Queue{
		{"arrivals", int64(len(s.arrivals)), arrivalsWaiting},
		{"in_flight_bytes", s.intake.inFlight.Load(), s.options.InFlight},
		{"observed", int64(len(s.observed.waiting)), observedWaiting},
		{"questions", int64(len(s.asked)), questionsWaiting},
		{"changes", int64(len(s.changes)), changesWaiting},
		{"exemplars", int64(len(s.grouper.exemplars.work)), tasksWaiting},
	}
	shards := Queue{Name: "shards"}
	for _, in := range s.inboxes {
		shards.Length += int64(len(in))
		shards.Most += deliveriesPerSh
	}
	return append(all, shards)
}

func (c *Counts) commit(took time.Duration) {
	c.Commits.Add(1)
	c.Waited.Add(int64(took))
}

func (c *Counts) unusable(reason trace.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusables == nil {
		c.unusables = make(map[trace.Reason]int64)
	}
	c.unusables[reason]++
}

// Unusable returns how many traces, or roots of traces, were complete and entered no statistics all the same, by reason.
func (c *Counts) Unusable() map[trace.Reason]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.unusables)
}

// Open returns what the shards hold together. Oldest is that of the oldest.
func (c *Counts) Open() assemble.OnlineStats {
	all := assemble.OnlineStats{Oldest: ^uint64(0)}
	for i := range c.open {
		s := c.open[i].Load()
		if s == nil {
			continue
		}
		all.Traces += s.Traces
		all.Spans += s.Spans
		all.Bytes += s.Bytes
		all.Late += s.Late
		all.Remembered += s.Remembered
		all.Oldest = min(all.Oldest, s.Oldest)
	}
	return all
}
