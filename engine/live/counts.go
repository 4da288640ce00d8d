package live

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// Counts holds counters since the start. It is safe for concurrent use.
type Counts struct {
	Requests atomic.Int64 // accepted export requests
	Spans    atomic.Int64 // accepted
	Arrived  atomic.Int64 // time of the last accepted spans, or about that of the last trace of a checkpoint; ns since 1970, 0: none
	Rejected atomic.Int64 // rejected spans of accepted requests
	Packed   atomic.Int64 // bytes appended to the journal
	Damaged  atomic.Int64 // unreadable or missing records of the journal
	Refused  struct {
		Busy, Full atomic.Int64 // requests
	}
	Closed  [assemble.CloseReasons]atomic.Int64 // traces, by reason
	Commits atomic.Int64                        // to the journal
	Waited  atomic.Int64                        // ns, for commits

	Epochs, Checkpoints, Unsaved atomic.Int64                                // epochs, checkpoints, failed checkpoints
	Decided, ExemplarsLate       atomic.Int64                                // ns of the end of the last epoch; exemplars that were not stored in time
	Encoded                      atomic.Int64                                // ns for which the last checkpoint stopped the core
	Downsampled                  atomic.Int64                                // ns for which storing the last windows stopped the core
	Forgotten                    struct{ Decisions, Exemplars atomic.Int64 } // deleted epochs and requests

	Names atomic.Int64 // deleted from the dictionary of the core

	mu        sync.Mutex                             // guards unusables and values
	unusables map[trace.Reason]int64                 // complete roots or traces that enter no statistics
	values    map[string]int64                       // values of attributes without a name, by key
	open      []atomic.Pointer[assemble.OnlineStats] // by shard; nil: unknown
}

// Queue is a queue of the service.
type Queue struct {
	Name         string
	Length, Most int64 // Most is the capacity
}

// Queues returns the current lengths of all queues. It is safe for concurrent use.
func (s *Service) Queues() []Queue {
	all := []Queue{
		{"arrivals", int64(len(s.arrivals)), arrivalsWaiting},
		{"in_flight_bytes", s.intake.inFlight.Load(), s.options.InFlight},
		{"observed_bytes", s.outputs.held.Load(), s.options.InFlight},
		{"questions", int64(len(s.queries)), queriesWaiting},
		{"changes", int64(len(s.changes)), changesWaiting},
		{"exemplars", int64(len(s.loop.exemplars.work)), tasksWaiting},
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

// unnamed counts values of attributes that have no name because their key has too many, by key.
func (c *Counts) unnamed(values iter.Seq2[string, uint64]) {
	for key, n := range values {
		c.mu.Lock()
		c.values[key] += int64(n)
		c.mu.Unlock()
	}
}

// expect makes the counts of the values of keys start at 0.
func (c *Counts) expect(keys []string) {
	c.values = make(map[string]int64)
	for _, key := range keys {
		c.values[key] = 0
	}
}

// Unnamed returns the number of times that values of attributes appeared that have no name because their key has too
// many, by key.
func (c *Counts) Unnamed() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.values)
}

// Unusable returns the numbers of complete traces, or roots of traces, that enter no statistics, by reason.
func (c *Counts) Unusable() map[trace.Reason]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.unusables)
}

// Open returns the statistics of the open traces of all shards.
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
