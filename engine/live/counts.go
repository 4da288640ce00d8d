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

// Counts holds counters that are 0 when the service starts. It is safe for concurrent use.
type Counts struct {
	Requests atomic.Int64 // number of accepted export requests
	Spans    atomic.Int64 // number of accepted spans
	// Arrived is the time when the latest spans of an observed request arrived, in ns since 1970; 0 if unknown. After a
	// restart, it is an estimate from the checkpoint.
	Arrived  atomic.Int64
	Rejected atomic.Int64 // number of rejected spans in accepted requests
	Packed   atomic.Int64 // number of bytes appended to the journal
	Damaged  atomic.Int64 // number of unreadable or missing journal records
	Refused  struct {
		Busy, Full, Memory, Quota atomic.Int64 // requests
	}
	repeated atomic.Int64                        // copies of spans in closed traces
	Closed   [assemble.CloseReasons]atomic.Int64 // number of traces, by reason
	Commits  atomic.Int64                        // number of commits to the journal
	Waited   atomic.Int64                        // time spent waiting for commits, in ns

	Epochs, Checkpoints, Unsaved atomic.Int64 // epochs, checkpoints, failed checkpoints
	Decided                      atomic.Int64 // time spent on the decisions of the last epoch, in ns
	deciding                     atomic.Int64 // start of the decisions in progress, in ns since 1970; 0 if none are
	ended                        atomic.Int64 // end of the last epoch with decisions, in ns since 1970
	ExemplarsLate                atomic.Int64 // number of exemplars, or sets of exemplars, not stored in time
	Encoded                      atomic.Int64 // time that the last checkpoint blocked the core, in ns
	Downsampled                  atomic.Int64 // time that encoding the last windows blocked the core, in ns
	// Forgotten counts the epochs whose decisions have been deleted, and the deleted exemplars.
	Forgotten struct{ Decisions, Exemplars atomic.Int64 }

	Names atomic.Int64 // number of names deleted from the dictionary of the core

	mu sync.Mutex // guards unusables, coverage, recent and values
	// unusables counts the roots excluded from the statistics, and the incomplete traces, whose parts are judged
	// separately.
	unusables map[trace.Reason]int64
	coverage  trace.Coverage                         // of all spans outside open traces
	recent    [2]recentCoverage                      // the current period and the previous one, in any order
	values    map[string]int64                       // number of attribute values without a name, by attribute key
	open      []atomic.Pointer[assemble.OnlineStats] // by shard; nil if unknown
}

// Queue describes a queue of the service, for metrics.
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

// arrived records the arrival of an observed request.
func (c *Counts) arrived(at trace.Nanos) {
	for {
		last := c.Arrived.Load()
		if int64(at) <= last || c.Arrived.CompareAndSwap(last, int64(at)) {
			return
		}
	}
}

// Duplicates returns the number of accepted spans that were ignored because they had arrived before, either within a
// trace or after the trace was closed. Duplicates of spans in traces closed before a restart count as late.
func (c *Counts) Duplicates() int64 { return c.repeated.Load() + c.Open().Duplicates }

func (c *Counts) unusable(reason trace.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusables == nil {
		c.unusables = make(map[trace.Reason]int64)
	}
	c.unusables[reason]++
}

// coveragePeriod is the resolution of the recent coverage.
const coveragePeriod = trace.Nanos(10 * time.Minute)

// recentCoverage is the coverage in one period.
type recentCoverage struct {
	period trace.Nanos // sequence number of the period since 1970
	of     trace.Coverage
}

// cover adds the coverage of spans that were rejected, or whose traces were closed, at time `at`.
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

// reject counts the rejected spans in all, which arrived at time `at`, and returns their number.
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

// Coverage returns the coverage of all spans since the start, except for spans of open traces.
func (c *Counts) Coverage() *trace.Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all trace.Coverage
	all.Merge(&c.coverage)
	return &all
}

// RecentCoverage returns the coverage of the last 10 to 20 minutes before now.
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

// unnamed adds values, which yields numbers by attribute key, to the counts of attribute values that have no name
// because their key has too many values.
func (c *Counts) unnamed(values iter.Seq2[string, uint64]) {
	for key, n := range values {
		c.mu.Lock()
		c.values[key] += int64(n)
		c.mu.Unlock()
	}
}

// expect sets the counts of attribute values to 0 for each key in keys, and drops all other counts.
func (c *Counts) expect(keys []string) {
	c.values = make(map[string]int64)
	for _, key := range keys {
		c.values[key] = 0
	}
}

// Unnamed returns, by attribute key, the number of occurrences of attribute values that have no name because the key
// has too many values.
func (c *Counts) Unnamed() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.values)
}

// Unusable returns the number of roots in settled traces that are excluded from the statistics, by reason. It includes
// the number of incomplete settled traces, whose parts are judged separately.
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
