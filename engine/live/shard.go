package live

import (
	"sync"
	"sync/atomic"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// shard owns the open traces whose IDs hash to it. It has a single goroutine.
type shard struct {
	number  int
	in      <-chan message
	intake  *intake // processed deliveries are released to it
	outputs *shardOutputs
	counts  *Counts
	open    *assemble.Online

	extractor *critpath.Extractor
	observer  observation.Observer
	closed    assemble.Closed
	spans     *observation.SpanTally // spans of the traces closed since the last barrier
	sites     *history.Tally         // calls of the traces closed since the last barrier
	coverage  *trace.Coverage        // coverage of all spans since the last flush
	out       *shardOutput
}

// shardOutput is output of a shard on its way to the core loop. It also carries new names from the sequencer.
type shardOutput struct {
	shard    int
	requests []request
	n        int                    // number of valid requests; the others are kept only to reuse their memory
	barrier  *barrier               // reached after the requests; may be nil
	oldest   uint64                 // with a barrier: first record that has spans of open traces
	closed   []uint64               // with a barrier: hashes of the IDs of the traces closed since the previous barrier
	spans    *observation.SpanTally // with a barrier: spans of these traces
	sites    *history.Tally         // with a barrier: calls of these traces
	names    *trace.Table           // new names; if set, no other field is
}

// request is the observation of a request with its simulation.
type request struct {
	observation.Observation
	simulation critpath.Simulation
}

// shardOutputs connects the shards and the sequencer to the core loop. It queues the outputs while the loop is busy,
// e.g. with the end of an epoch or with a checkpoint, so that neither the shards nor the intake has to wait.
type shardOutputs struct {
	waiting chan *shardOutput
	ready   chan *shardOutput // to the core loop: outputs from waiting, in the same order
	limit   int64             // maximum size of the outputs between the two channels, in bytes
	held    atomic.Int64      // size of those outputs, in bytes
	free    sync.Pool         // of *shardOutput
}

func newShardOutputs(limit int64) *shardOutputs {
	return &shardOutputs{waiting: make(chan *shardOutput, outputsWaiting), ready: make(chan *shardOutput), limit: limit}
}

// bytes estimates the memory used by o.
func (o *shardOutput) bytes() int64 {
	const output, perName, perRequest, perEdge, perVariable = 200, 100, 500, 64, 48
	const perContext = 160 // including the context's part of the simulation
	n := output
	if o.names != nil {
		n += perName * o.names.Len()
	}
	for i := range o.requests[:o.n] {
		r := &o.requests[i]
		edges := len(r.Edges) + len(r.Refined)
		n += perRequest + perContext*len(r.Contexts) + perEdge*edges + perVariable*len(r.Variables)
	}
	return int64(n)
}

// run moves outputs from q.waiting to q.ready. Once q.waiting is closed and drained, it closes q.ready.
func (q *shardOutputs) run() {
	defer close(q.ready)
	type sized struct {
		*shardOutput
		bytes int64
	}
	var held []sized
	for more := true; more || len(held) > 0; {
		var in, out chan *shardOutput
		var first sized
		if more && q.held.Load() < q.limit {
			in = q.waiting
		}
		if len(held) > 0 {
			out, first = q.ready, held[0]
		}
		var o *shardOutput
		select {
		case o, more = <-in:
			if more {
				held = append(held, sized{o, o.bytes()})
				q.held.Add(held[len(held)-1].bytes)
			}
		case out <- first.shardOutput:
			held[0] = sized{}
			held = held[1:]
			q.held.Add(-first.bytes)
		}
	}
}

// outputRequests is the number of requests at which a shard sends its output to the core loop.
const outputRequests = 64

func newShard(number int, in <-chan message, o *Options, from *intake, outputs *shardOutputs, counts *Counts) *shard {
	assembly := o.Assembly
	assembly.Memory /= int64(o.Shards)
	return &shard{
		number: number, in: in, intake: from, outputs: outputs, counts: counts, open: assemble.NewOnline(assembly),
		extractor: critpath.NewExtractor(o.Core.Path), spans: &observation.SpanTally{Limit: o.Core.Operations},
		sites:    history.NewTally(),
		coverage: new(trace.Coverage), out: &shardOutput{shard: number},
	}
}

// run processes messages until sh.in is closed.
func (sh *shard) run() {
	for m := range sh.in {
		sh.close(m.at)
		if d := m.delivery; d != nil {
			for _, r := range d.runs[sh.number] {
				sh.open.Add(m.at, d.seq, &d.batch, r)
				sh.close(m.at)
			}
			if d.left.Add(-1) == 0 {
				sh.intake.release(d)
			}
			continue
		}
		if m.barrier != nil {
			sh.out.barrier, sh.out.oldest, sh.out.closed = m.barrier, sh.open.Stats().Oldest, sh.open.NewlyClosed()
			sh.out.spans, sh.spans = sh.spans, &observation.SpanTally{Limit: sh.spans.Limit}
			sh.out.sites, sh.sites = sh.sites, history.NewTally()
		}
		sh.flush()
		sh.open.Account(sh.coverage)
		sh.counts.cover(m.at, sh.coverage)
		sh.coverage = new(trace.Coverage)
		sh.counts.open[sh.number].Store(new(sh.open.Stats()))
	}
}

// close closes the traces that are due and observes the ones that have settled. It doesn't observe other traces: they
// were cut off at an arbitrary point, so calls still in progress would look unanswered.
func (sh *shard) close(now trace.Nanos) {
	for sh.open.Next(now, &sh.closed) {
		sh.counts.Closed[sh.closed.Reason].Add(1)
		if sh.closed.Reason.Settled() {
			sh.observe()
			continue
		}
		sh.closed.Leave(sh.coverage)
	}
}

// observe adds the observations of the closed trace to the output.
func (sh *shard) observe() {
	p := sh.extractor.Extract(&sh.closed.Trace)
	p.Cover(sh.coverage)
	sh.sites.Observe(p)
	sh.counts.repeated.Add(int64(p.Counts.Duplicates))
	if !p.Complete() {
		sh.counts.unusable(trace.Incomplete)
	}
	sh.spans.Observe(p, sh.closed.At)
	for i := range p.Roots {
		if reason := p.Unusable(i); reason != "" {
			sh.counts.unusable(reason)
			continue
		}
		if sh.out.n == len(sh.out.requests) {
			sh.out.requests = append(sh.out.requests, request{})
		}
		r := &sh.out.requests[sh.out.n]
		sh.counts.arrived(sh.closed.Last)
		sh.observer.Observe(p, i, &r.Observation)
		r.simulation.Capture(p, i)
		r.Records = append(r.Records[:0], sh.closed.Records...)
		sh.out.n++
	}
	if sh.out.n >= outputRequests {
		sh.flush()
	}
}

// flush sends the output to the core loop, unless it has neither requests nor a barrier.
func (sh *shard) flush() {
	if sh.out.n == 0 && sh.out.barrier == nil {
		return
	}
	sh.outputs.waiting <- sh.out
	sh.out, _ = sh.outputs.free.Get().(*shardOutput)
	if sh.out == nil {
		sh.out = &shardOutput{}
	}
	*sh.out = shardOutput{shard: sh.number, requests: sh.out.requests}
}
