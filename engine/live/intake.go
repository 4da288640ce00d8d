package live

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// fullDelay is the delay before a retry if there is no room. Exporters give up after ten seconds.
const fullDelay = 2 * time.Second

// Reasons to refuse a request. All are temporary, and no part of a refused request is stored.
var (
	errBusy     = refusal.New(refusal.Overloaded, "too many requests are waiting", "").Later(time.Second)
	errFull     = refusal.New(refusal.Overloaded, "the disk is full", "").Later(fullDelay)
	errMemory   = refusal.New(refusal.Overloaded, "the memory is used up", "").Later(fullDelay)
	errOverfull = refusal.New(refusal.Overloaded, "the journal has reached its size limit", "").Later(fullDelay)
	errStarting = refusal.New(refusal.Overloaded, "the service is starting and reads its journal", "").
			Later(time.Second)
	errStopping = refusal.New(refusal.Overloaded, "the service is stopping", "").Later(time.Second)
)

// intake decodes export requests and limits the bytes in flight. It is safe for concurrent use.
type intake struct {
	shards   int
	limit    int64 // see Options.InFlight
	heap     heapWatch
	quota    quota
	decoders chan *decoder
	free     sync.Pool    // of *delivery
	inFlight atomic.Int64 // bytes
	// names holds the names of released deliveries that didn't reach the core; may be nil. The next delivery carries
	// them, because their decoder won't return them again.
	names atomic.Pointer[trace.Table]
	// period is the number of the current period of the core's dictionary. Each decoder starts a period with an empty
	// dictionary.
	period atomic.Int64
	counts *Counts
}

func newIntake(o *Options, counts *Counts) *intake {
	in := &intake{
		shards:   o.Shards,
		limit:    o.InFlight,
		heap:     heapWatch{limit: uint64(o.Heap)},
		quota:    quota{rate: o.SpansPerSecond},
		decoders: make(chan *decoder, o.Decoders),
		counts:   counts,
	}
	if o.Blameless > 0 {
		in.heap.blamed = func() bool { return in.inFlight.Load()+counts.Open().Bytes > o.Blameless }
	}
	for range cap(in.decoders) {
		in.decoders <- newDecoder(o.Keys, o.DecoderNames)
	}
	return in
}

// decoder is one of several decoders, each with its own caches and dictionary, that decode requests in parallel.
type decoder struct {
	*otlp.Decoder
	table  *trace.Table
	period int64 // period that the names in table belong to
}

// newDecoder returns a decoder whose dictionary has at most the given number of names of each kind. If the new names in
// a request take more than a quarter of the dictionary, some of them lose their text but keep their identity.
func newDecoder(keys *ingest.Keys, names int) *decoder {
	table := &trace.Table{Limit: names}
	table.RecordAdditions()
	d := &decoder{Decoder: otlp.NewDecoder(table, keys), table: table}
	d.Limit()
	return d
}

// begin prepares the decoder for a request in period. It drops all names if they are from an earlier period or leave
// little room for more.
func (c *decoder) begin(period int64) {
	if c.period != period || c.table.Crowded() {
		c.period = period
		c.Forget()
	}
}

// delivery is an export request on its way to the shards.
type delivery struct {
	kind    journal.Kind
	batch   ingest.Batch
	runs    [][]assemble.Run // by shard
	names   *trace.Table     // names new to the decoder and not yet sent to the core; may be nil
	packed  []byte           // for the journal
	cost    int64            // in bytes of Options.InFlight
	seq     uint64
	durable chan error   // receives one value
	left    atomic.Int32 // number of shards that haven't processed the delivery yet
}

// charge adds a request of size bytes to the bytes in flight and returns its cost.
func (in *intake) charge(size int) (cost int64) {
	cost = requestCost * int64(size)
	in.inFlight.Add(cost)
	return cost
}

// refund undoes charge.
func (in *intake) refund(cost int64) { in.inFlight.Add(-cost) }

// newDelivery returns an empty delivery for a request with the given kind and cost.
func (in *intake) newDelivery(kind journal.Kind, cost int64) *delivery {
	d, _ := in.free.Get().(*delivery)
	if d == nil {
		d = &delivery{runs: make([][]assemble.Run, in.shards)}
	}
	d.batch.Reset()
	for i := range d.runs {
		d.runs[i] = d.runs[i][:0]
	}
	d.kind, d.cost, d.packed, d.names = kind, cost, d.packed[:0], nil
	d.durable = make(chan error, 1) // not reused because d may be reused before the value is received
	return d
}

// requestCost is the cost of each byte of a request, in bytes of Options.InFlight. It covers the decoded spans and the
// packed form.
const requestCost = 2

// maxReusedDelivery is the maximum size, in bytes, of the packed data and of the spans of a delivery that is reused.
const maxReusedDelivery = 4 << 20

// release refunds the cost of d and returns d to the pool. d must have failed, or all shards must have processed it.
func (in *intake) release(d *delivery) {
	in.refund(d.cost)
	in.keepNames(d.names)
	d.names = nil
	if cap(d.packed) <= maxReusedDelivery && cap(d.batch.Spans) <= maxReusedDelivery/64 {
		in.free.Put(d)
	}
}

// keepNames keeps names, which may be nil, for the next delivery, and takes ownership of it.
func (in *intake) keepNames(names *trace.Table) {
	for names != nil && !in.names.CompareAndSwap(nil, names) {
		if kept := in.names.Swap(nil); kept != nil {
			names.Merge(kept)
		}
	}
}

// takeNames removes the kept names and returns them merged with names. Either may be nil; if both are nil, so is the
// result.
func (in *intake) takeNames(names *trace.Table) *trace.Table {
	if in.names.Load() == nil {
		return names
	}
	kept := in.names.Swap(nil)
	if kept == nil || names == nil {
		return cmp.Or(kept, names)
	}
	names.Merge(kept)
	return names
}

// full reports whether the bytes in flight have reached the limit, so that no more requests are accepted.
func (in *intake) full() bool { return in.inFlight.Load() >= in.limit }

// overrun reports whether a request with the given cost, which has already been charged, exceeds the limit. The only
// request in flight never does.
func (in *intake) overrun(cost int64) bool {
	n := in.inFlight.Load()
	return n > in.limit && n > cost
}

// decode decodes body into d and assigns its spans to shards. If no decoder is free, it waits for one until ctx is
// done, and then returns the cause.
func (in *intake) decode(ctx context.Context, d *delivery, body []byte) error {
	var c *decoder
	select {
	case c = <-in.decoders:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.begin(in.period.Load())
	var err error
	if d.kind == journal.JSON {
		err = c.JSON(body, &d.batch)
	} else {
		err = c.Protobuf(body, &d.batch)
	}
	d.names = in.takeNames(c.table.TakeAdditions())
	in.counts.unnamed(c.Unnamed())
	in.decoders <- c
	if err != nil {
		return err
	}
	assemble.Runs(&d.batch, d.runs)
	return nil
}

// Refuse returns the refusal that any request would receive now, or nil if requests are accepted. It counts the refusal
// unless the service is starting. It doesn't block, so that a receiver can refuse a request before reading its body. It
// is safe for concurrent use.
func (s *Service) Refuse() *refusal.Error {
	if !s.ready.Load() {
		return s.unready()
	}
	if refused := s.intake.quota.exceeded(s.options.Clock(), s.counts.Spans.Load()); refused != nil {
		s.counts.Refused.Quota.Add(1)
		return refused
	}
	switch {
	case s.options.Full(s.options.Clock()):
		s.counts.Refused.Full.Add(1)
		return errFull
	case s.overfull.Load():
		s.counts.Refused.Full.Add(1)
		return errOverfull
	case s.intake.full():
		s.counts.Refused.Busy.Add(1)
		return errBusy
	case s.intake.heap.full():
		s.counts.Refused.Memory.Add(1)
		return errMemory
	}
	return nil
}

// unready returns the reason why the service is not ready.
func (s *Service) unready() *refusal.Error {
	return cmp.Or(s.Standby(), errStarting)
}

// Standby returns the refusal of requests while another replica leads, or nil. It is safe for concurrent use.
func (s *Service) Standby() *refusal.Error {
	leader := s.Leader()
	if leader == "" {
		return nil
	}
	return refusal.New(refusal.Overloaded, "this replica is a standby", leader+" leads").Later(time.Second)
}

// Take accepts body, an uncompressed export request, and returns once it is durable. It returns the number of rejected
// spans and the reasons. It doesn't retain body. An [*ingest.RecordError] means that body is not an export request. A
// [refusal.Overloaded] error means that the request was refused and can be sent again. Take is safe for concurrent use.
func (s *Service) Take(ctx context.Context, body []byte, kind journal.Kind) (rejected int, why string, err error) {
	if refused := s.Refuse(); refused != nil {
		return 0, "", refused
	}
	cost := s.intake.charge(len(body))
	if s.intake.overrun(cost) {
		s.intake.refund(cost)
		s.counts.Refused.Busy.Add(1)
		return 0, "", errBusy
	}
	d := s.intake.newDelivery(kind, cost)
	if err := s.intake.decode(ctx, d, body); err != nil {
		s.intake.release(d)
		return 0, "", err
	}
	rejected, why = d.batch.RejectedSpans(), rejectionText(&d.batch)
	if len(d.batch.Spans) == 0 { // nothing to store
		s.counts.reject(trace.Nanos(s.options.Clock().UnixNano()), d.batch.Rejected)
		s.intake.release(d)
		return rejected, why, nil
	}
	d.packed = journal.Pack(d.packed, body)
	durable := d.durable
	select {
	case s.arrivals <- d:
	case <-ctx.Done():
		s.intake.release(d)
		return 0, "", context.Cause(ctx)
	}
	select {
	case err = <-durable:
	case <-s.stopped:
		select {
		case err = <-durable:
		default:
			err = errStopping
		}
	}
	if err != nil {
		return 0, "", err
	}
	return rejected, why, nil
}

// Reject counts spans of an accepted request that were rejected before [Service.Take], and returns their number. It is
// safe for concurrent use.
func (s *Service) Reject(rejected []ingest.Rejection) int {
	return s.counts.reject(trace.Nanos(s.options.Clock().UnixNano()), rejected)
}

// rejectionText returns the reasons for the rejected spans of b, each with the number of spans and a detail.
func rejectionText(b *ingest.Batch) string {
	var all []string
	for _, r := range b.Rejected {
		all = append(all, fmt.Sprintf("%d %s: %s", r.Spans, r.Reason, r.Detail))
	}
	return strings.Join(all, "; ")
}
