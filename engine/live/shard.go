package live

import (
	"sync"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// shard owns the open traces whose IDs hash to it. It has one goroutine.
type shard struct {
	number int
	in     <-chan message
	intake *intake // deliveries go back to it
	to     *observations
	counts *Counts
	open   *assemble.Online

	extractor *critpath.Extractor
	observer  observation.Observer
	closed    assemble.Closed
	spans     *observation.SpanTimes // of the traces closed since the last mark
	out       *observed
}

// observed is what a shard saw, on its way to the grouper.
type observed struct {
	shard    int
	requests []request
	n        int                    // of requests that are filled in; the others keep their memory
	mark     *mark                  // an epoch ended after them; nil: none
	oldest   uint64                 // with a mark: the first record that open traces have spans of
	closed   []uint64               // with a mark: hashes of the IDs of traces closed since the last one
	spans    *observation.SpanTimes // with a mark: of these traces
	names    *trace.Table           // new names, and nothing else; nil: none
}

// request is an observation and where its spans are in the journal.
type request struct {
	observation.Observation
	simulation critpath.Simulation
	records    []uint64
}

// observations is the way from the shards to the grouper.
type observations struct {
	waiting chan *observed
	free    sync.Pool // of *observed
}

// observedBatch is how many requests go to the grouper at a time.
const observedBatch = 64

func newShard(number int, in <-chan message, o *Options, from *intake, to *observations, counts *Counts) *shard {
	assembly := o.Assembly
	assembly.Memory /= int64(o.Shards)
	return &shard{
		number: number, in: in, intake: from, to: to, counts: counts, open: assemble.NewOnline(assembly),
		extractor: critpath.NewExtractor(o.Core.Path), spans: new(observation.SpanTimes), out: &observed{shard: number},
	}
}

// run takes what comes until there is no more.
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
		if m.mark != nil {
			sh.out.mark, sh.out.oldest, sh.out.closed = m.mark, sh.open.Stats().Oldest, sh.open.NewlyClosed()
			sh.out.spans, sh.spans = sh.spans, new(observation.SpanTimes)
		}
		sh.flush()
		sh.counts.open[sh.number].Store(new(sh.open.Stats()))
	}
}

// close closes the traces whose time has come.
func (sh *shard) close(now trace.Nanos) {
	for sh.open.Next(now, &sh.closed) {
		sh.counts.Closed[sh.closed.Reason].Add(1)
		if sh.closed.Reason == assemble.Complete {
			sh.observe()
		}
	}
}

// observe reduces the closed trace to observations.
func (sh *shard) observe() {
	p := sh.extractor.Extract(&sh.closed.Trace)
	if !p.Complete() {
		sh.counts.unusable(trace.Incomplete)
		return
	}
	sh.spans.Observe(p)
	for i := range p.Roots {
		if reason := p.Unusable(i); reason != "" {
			sh.counts.unusable(reason)
			continue
		}
		if sh.out.n == len(sh.out.requests) {
			sh.out.requests = append(sh.out.requests, request{})
		}
		r := &sh.out.requests[sh.out.n]
		sh.observer.Observe(p, i, &r.Observation)
		r.simulation.Capture(p, i)
		r.records = append(r.records[:0], sh.closed.Records...)
		sh.out.n++
	}
	if sh.out.n >= observedBatch {
		sh.flush()
	}
}

// flush hands what was observed to the grouper.
func (sh *shard) flush() {
	if sh.out.n == 0 && sh.out.mark == nil {
		return
	}
	sh.to.waiting <- sh.out
	sh.out, _ = sh.to.free.Get().(*observed)
	if sh.out == nil {
		sh.out = &observed{}
	}
	*sh.out = observed{shard: sh.number, requests: sh.out.requests}
}
