package live

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// Refused says that a request was not taken for now: nothing of it was.
type Refused struct {
	Why   string        // fit to be shown
	After time.Duration // when to try again
}

// Error returns why.
func (r *Refused) Error() string { return r.Why }

// Why requests are refused.
var (
	errBusy     = &Refused{"too much is waiting to be analysed", time.Second}
	errFull     = &Refused{"the disk is full", 2 * time.Second} // exporters give up after ten
	errOverfull = &Refused{"the journal has reached its bound", 2 * time.Second}
	errStarting = &Refused{"the journal is being read", time.Second}
	errStopping = &Refused{"the service is stopping", time.Second}
)

// decoder is one of a few that take turns: each has caches and a dictionary of its own.
type decoder struct {
	*otlp.Decoder
	table *trace.Table
}

// decoderNames bounds the dictionary of one decoder. What is beyond keeps its identity and loses its name.
const decoderNames = 1 << 18

func newDecoder(keys *ingest.Keys) *decoder {
	table := &trace.Table{Limit: decoderNames}
	table.RecordAdditions()
	return &decoder{otlp.NewDecoder(table, keys), table}
}

// delivery is one request on its way to the shards.
type delivery struct {
	kind    journal.Kind
	batch   ingest.Batch
	runs    [][]assemble.Run // by shard
	names   *trace.Table     // that were new to the decoder; nil: none
	packed  []byte           // for the journal
	cost    int64            // of Options.InFlight
	seq     uint64
	durable chan error // told once
	left    atomic.Int32
}

func (s *Service) newDelivery() *delivery {
	d, _ := s.batches.Get().(*delivery)
	if d == nil {
		d = &delivery{runs: make([][]assemble.Run, len(s.shards))}
	}
	d.batch.Reset()
	for i := range d.runs {
		d.runs[i] = d.runs[i][:0]
	}
	d.packed, d.names = d.packed[:0], nil
	d.durable = make(chan error, 1) // its own: d may be another's when this one is read
	return d
}

// keptDelivery is how many bytes of packed data, or spans, a delivery may have to be used again.
const keptDelivery = 4 << 20

// release gives a delivery back when the last shard has taken what is its.
func (s *Service) release(d *delivery) {
	s.inFlight.Add(-d.cost)
	if cap(d.packed) <= keptDelivery && cap(d.batch.Spans) <= keptDelivery/64 {
		s.batches.Put(d)
	}
}

// requestCost is what a request costs of Options.InFlight for each of its bytes: its spans, and itself packed.
const requestCost = 2

// Refuse returns why any request would be refused now, which then counts as refused; nil: none would for that. It takes no time: whoever has a
// request need not read it before. It is safe for concurrent use.
func (s *Service) Refuse() *Refused {
	switch {
	case !s.ready.Load():
		return errStarting
	case s.options.Full(s.options.Clock()):
		s.counts.Refused.Full.Add(1)
		return errFull
	case s.overfull.Load():
		s.counts.Refused.Full.Add(1)
		return errOverfull
	case s.inFlight.Load() >= s.options.InFlight:
		s.counts.Refused.Busy.Add(1)
		return errBusy
	}
	return nil
}

// Take takes an export request, uncompressed, and returns when it is durable: how many of its spans were left out, and why. Of body nothing
// is kept. An error that is a [*ingest.RecordError] says that it is no such request, a [*Refused] that it was not taken for now. It is safe for
// concurrent use.
func (s *Service) Take(ctx context.Context, body []byte, kind journal.Kind) (rejected int, why string, err error) {
	if refused := s.Refuse(); refused != nil {
		return 0, "", refused
	}
	cost := requestCost * int64(len(body))
	if n := s.inFlight.Add(cost); n > s.options.InFlight && n > cost { // a single one is always let in
		s.inFlight.Add(-cost)
		s.counts.Refused.Busy.Add(1)
		return 0, "", errBusy
	}
	d := s.newDelivery()
	d.kind, d.cost = kind, cost
	if err := s.decode(ctx, d, body); err != nil {
		s.release(d)
		return 0, "", err
	}
	rejected, why = d.batch.RejectedSpans(), rejections(&d.batch)
	if len(d.batch.Spans) == 0 { // the journal has no use for it
		s.counts.Rejected.Add(int64(rejected))
		s.release(d)
		return rejected, why, nil
	}
	d.packed = journal.Pack(d.packed, body)
	durable := d.durable
	select {
	case s.arrivals <- d:
	case <-ctx.Done():
		s.release(d)
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

// decode decodes body into d, and says which shards its spans are for.
func (s *Service) decode(ctx context.Context, d *delivery, body []byte) error {
	var c *decoder
	select {
	case c = <-s.decoders:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	if d.kind == journal.JSON {
		err = c.JSON(body, &d.batch)
	} else {
		err = c.Protobuf(body, &d.batch)
	}
	d.names = c.table.TakeAdditions()
	s.decoders <- c
	if err != nil {
		return err
	}
	assemble.Runs(&d.batch, d.runs)
	return nil
}

// rejections says why spans of b were left out, with the first of each kind.
func rejections(b *ingest.Batch) string {
	var all []string
	for _, r := range b.Rejected {
		all = append(all, fmt.Sprintf("%d %s: %s", r.Spans, r.Reason, r.Detail))
	}
	return strings.Join(all, "; ")
}
