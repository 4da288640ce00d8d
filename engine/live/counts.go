package live

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// Counts holds counters since the start. It is safe for concurrent use.
type Counts struct {
	Requests atomic.Int64 // accepted export requests
	Spans    atomic.Int64 // accepted
	// arrival of the last spans of observed requests, or about that of the last trace of a checkpoint;
	// ns since 1970, 0: unknown
	Arrived  atomic.Int64
	Rejected atomic.Int64 // rejected spans of accepted requests
	Packed   atomic.Int64 // bytes appended to the journal
	Damaged  atomic.Int64 // unreadable or missing records of the journal
	Refused  struct {
		Busy, Full atomic.Int64 // requests
	}
	repeated atomic.Int64                        // copies of spans in closed traces
	Closed   [assemble.CloseReasons]atomic.Int64 // traces, by reason
	Commits  atomic.Int64                        // to the journal
	Waited   atomic.Int64                        // ns, for commits

	Epochs, Checkpoints, Unsaved atomic.Int64                                // epochs, checkpoints, failed checkpoints
	Decided, ExemplarsLate       atomic.Int64                                // ns of the end of the last epoch; exemplars that were not stored in time
	Encoded                      atomic.Int64                                // ns for which the last checkpoint stopped the core
	Downsampled                  atomic.Int64                                // ns for which storing the last windows stopped the core
	Forgotten                    struct{ Decisions, Exemplars atomic.Int64 } // deleted epochs and requests

	Names atomic.Int64 // deleted from the dictionary of the core

	mu sync.Mutex // guards unusables, coverage, recent and values
	// roots that enter no statistics, and incomplete traces, which are judged in their parts
	unusables map[trace.Reason]int64
	coverage  trace.Coverage                         // of all spans but those of open traces
	recent    [2]recentCoverage                      // of this period and the one before, in any order
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

// arrived notes the arrival of an observed request.
func (c *Counts) arrived(at trace.Nanos) {
	for {
		last := c.Arrived.Load()
		if int64(at) <= last || c.Arrived.CompareAndSwap(last, int64(at)) {
			return
		}
	}
}

// Duplicates returns the number of accepted spans that were ignored because they had arrived before: within one trace,
// or after it was closed. After a restart, those of traces closed before it count as late.
func (c *Counts) Duplicates() int64 { return c.repeated.Load() + c.Open().Duplicates }

func (c *Counts) unusable(reason trace.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusables == nil {
		c.unusables = make(map[trace.Reason]int64)
	}
	c.unusables[reason]++
}

// coveragePeriod is the unit of time of recent coverage.
const coveragePeriod = trace.Nanos(10 * time.Minute)

// recentCoverage is the coverage of a period.
type recentCoverage struct {
	period trace.Nanos // number of the period since 1970
	of     trace.Coverage
}

// cover adds the accounts of spans, which were closed or refused at a time.
func (c *Counts) cover(at trace.Nanos, of *trace.Coverage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coverage.Merge(of)
	period := at / coveragePeriod
	r := &c.recent[period%2]
	if r.period < period {
		*r = recentCoverage{period: period}
	}
	if r.period == period { // a shard may be behind the others
		r.of.Merge(of)
	}
}

// reject counts spans that were refused while reading.
func (c *Counts) reject(at trace.Nanos, all []ingest.Rejection) (spans int) {
	var of trace.Coverage
	for _, r := range all {
		of.LeaveSpans(int64(r.Spans), r.Reason)
		spans += r.Spans
	}
	if spans > 0 {
		c.Rejected.Add(int64(spans))
		c.cover(at, &of)
	}
	return spans
}

// Coverage returns what became of the spans since the start. Spans of open traces are not among them.
func (c *Counts) Coverage() *trace.Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all trace.Coverage
	all.Merge(&c.coverage)
	return &all
}

// RecentCoverage returns what became of the spans in the last ten to twenty minutes before now.
func (c *Counts) RecentCoverage(now trace.Nanos) *trace.Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all trace.Coverage
	for i := range c.recent {
		if r := &c.recent[i]; r.period >= now/coveragePeriod-1 {
			all.Merge(&r.of)
		}
	}
	return &all
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

// Unusable returns the numbers of roots of settled traces that enter no statistics, by reason, and the number of
// settled traces that are incomplete, which are judged in their parts.
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
		all.Duplicates += s.Duplicates
		all.Remembered += s.Remembered
		all.Oldest = min(all.Oldest, s.Oldest)
	}
	return all
}
