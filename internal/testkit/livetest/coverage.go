package livetest

import (
	"testing"

	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// CoverageAgrees plays requests through a [backtest.Player] and through a service. Both must account for the same
// spans, and every accepted or refused span must be in exactly one account. send must call do with each request and its
// time of arrival.
func CoverageAgrees(t *testing.T, send func(do func(at trace.Nanos, body []byte) error) error) {
	o := live.DefaultOptions()
	// The filter that distinguishes duplicates from late spans is wrong for one span in thirty, and these spans differ
	// between shards.
	o.Shards = 1
	table := &trace.Table{}
	keys, err := ingest.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	decoder := otlp.NewDecoder(table, keys)
	p := backtest.NewPlayer(nil, backtest.Options{Table: table, Core: o.Core, Assembly: o.Assembly})
	var s *Service
	var refused trace.Coverage
	var now trace.Nanos
	err = send(func(at trace.Nanos, body []byte) error {
		now = max(now, at)
		if s == nil {
			s = Start(t, o, now)
		}
		s.Receive(now, body)
		var batch ingest.Batch
		if err := decoder.Protobuf(body, &batch); err != nil {
			return err
		}
		for _, r := range batch.Rejected {
			refused.LeaveSpans(int64(r.Spans), r.Reason)
		}
		if len(batch.Spans) > 0 {
			p.Play(&trace.Trace{ID: batch.Traces[0], Spans: batch.Spans, Attrs: batch.Attrs, Joins: batch.Joins})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := p.Finish().Coverage
	want.Merge(&refused)
	s.Pass(p.Now())
	counts := s.Counts()
	got := counts.Coverage()
	if !got.Equal(want) {
		t.Errorf("the service accounts for %+v, the backtest for %+v", got.Total(), want.Total())
	}
	total := got.Total()
	received, in := total.Received().Spans, counts.Spans.Load()+counts.Rejected.Load()
	if open := counts.Open().Spans; received+open != in || open != 0 {
		t.Errorf("%d spans are accounted for and %d wait, of %d", received, open, in)
	}
	t.Logf("%d spans: %+v", in, total)
}
