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
	Closed  [assemble.Closings]atomic.Int64 // traces, by reason
	Commits atomic.Int64                    // to the journal
	Waited  atomic.Int64                    // ns, for these

	Epochs, Checkpoints, Unsaved atomic.Int64 // ended; taken; could not be taken
	Decided, ExemplarsLate       atomic.Int64 // ns that the last epoch's end took; exemplars that could not be kept
	Ticks                        atomic.Int64 // times that the clock was looked at

	mu        sync.Mutex                             // guards unusables
	unusables map[trace.Reason]int64                 // roots, or traces, that entered no statistics
	open      []atomic.Pointer[assemble.OnlineStats] // by shard; nil: not told yet
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
