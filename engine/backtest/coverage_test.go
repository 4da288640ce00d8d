package backtest_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/internal/testkit/livetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Every span that was played is counted in exactly one account, no matter which traces and parts it arrives in.
func TestCoverageAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := backtest.Options{Table: &trace.Table{}, Assembly: assemble.DefaultOnlineOptions()}
		options.Core = engine.DefaultOptions()
		options.Assembly.Memory = int64(rapid.SampledFrom([]int{1, 1 << 30}).Draw(t, "memory"))
		p := backtest.NewPlayer(nil, options)
		var spans, nanos, long int64
		for i := range rapid.IntRange(1, 12).Draw(t, "parts") {
			x := *tracetest.Traces(tracetest.Everything).Draw(t, "trace")
			x.ID = trace.ID{15: byte(1 + rapid.IntRange(0, 5).Draw(t, "id"))}
			x = *tracetest.Shift(&x, trace.Nanos(100+7*i)*1e9)
			for k := range x.Spans {
				spans++
				if d := x.Spans[k].Duration(); d < trace.LongSpan {
					nanos += max(0, int64(d))
				} else {
					long += int64(d)
				}
			}
			p.Play(&x)
		}
		r := p.Finish()
		total := r.Coverage.Total()
		if all := total.Received(); all.Spans != spans || all.Nanos != nanos || total.Long.Nanos != long {
			t.Fatalf("coverage %+v adds up to %+v, want %d spans of %d ns, and %d ns of long ones",
				total, all, spans, nanos, long)
		}
	})
}

// arrival is a part of a trace that arrives when its last span ends.
type arrival struct {
	at   trace.Nanos
	part *trace.Trace
}

// begun is the time of a generator's first trace.
const begun = trace.Nanos(1_700_000_000_000_000_000)

// A running service and a backtest account for the spans of any traffic in the same way. Every accepted or refused span
// is in exactly one account.
func TestCoverageAgreesWithService(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 7))
	table := &trace.Table{}
	for name, all := range map[string][]arrival{
		"simulated":             simulate(table, func(x *trace.Trace) []*trace.Trace { return []*trace.Trace{x} }),
		"simulated, but untidy": simulate(table, func(x *trace.Trace) []*trace.Trace { return untidy(random, x) }),
		"unusual":               unusual(random, table),
	} {
		t.Run(name, func(t *testing.T) {
			livetest.CoverageAgrees(t, func(do func(trace.Nanos, []byte) error) error { return encode(all, table, do) })
		})
	}
}

// encode calls do with each part as a request in protobuf.
func encode(all []arrival, table *trace.Table, do func(at trace.Nanos, body []byte) error) error {
	for _, a := range all {
		body, err := tracegen.Protobuf([]*trace.Trace{a.part}, table)
		if err == nil {
			err = do(a.at, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns the parts in the order they end.
func inOrder(parts []*trace.Trace) []arrival {
	all := make([]arrival, len(parts))
	for i, x := range parts {
		_, at := backtest.Extent(x)
		all[i] = arrival{at, x}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// simulate returns the requests of a simulated application, divided into parts by cut, and adds their names to table.
func simulate(table *trace.Table, cut func(*trace.Trace) []*trace.Trace) []arrival {
	app := sim.New(sim.Config{
		Seed:        5,
		Tracepoints: 100,
		Rate:        15,
		Messages:    0.3,
		Skew:        2 * time.Second,
	})
	var parts []*trace.Trace
	for x := range app.Requests(begun, begun.Add(time.Minute), nil) {
		copied := &trace.Trace{ID: x.ID}
		copied.Append(x)
		parts = append(parts, cut(copied)...)
	}
	table.Merge(app.Table())
	return inOrder(parts)
}

// untidy returns x as it may arrive in practice. Some spans are missing, some are duplicates, and some work starts
// after its parent has ended. The trace arrives in parts; some are late, or follow each other for longer than a trace
// stays open.
func untidy(random *rand.Rand, x *trace.Trace) []*trace.Trace {
	parts := []*trace.Trace{{ID: x.ID}, {ID: x.ID}, {ID: x.ID}}
	late := trace.Nanos(random.IntN(3)) * 12e9
	for i := range x.Spans {
		s := &x.Spans[i]
		switch to := random.IntN(40); to {
		case 0: // missing
			continue
		case 1:
			s.Start, s.End = s.End.Add(time.Second), s.End.Add(2*time.Second)
		case 2:
			tracetest.Move(parts[0], x, int32(i))
		case 3:
			s.End = s.Start
		case 4, 5, 6, 7, 8:
			s.Start, s.End = s.Start+late, s.End+late
			tracetest.Move(parts[1+to%2], x, int32(i))
			continue
		}
		tracetest.Move(parts[0], x, int32(i))
	}
	return slices.DeleteFunc(parts, func(p *trace.Trace) bool { return len(p.Spans) == 0 })
}

// unusual returns traces with all kinds of unusual properties and few different IDs. It takes their names from table.
func unusual(random *rand.Rand, table *trace.Table) []arrival {
	names := []trace.Symbol{table.Symbol("a"), table.Symbol("b"), table.Symbol("c")}
	var parts []*trace.Trace
	for i := range 300 {
		x := tracetest.Build(tracetest.Everything, func(_ string, n int) int { return random.IntN(n) })
		x.ID = trace.ID{14: byte(i / 12), 15: byte(1 + random.IntN(5))}
		x.Attrs, x.Joins = nil, nil
		for k := range x.Spans {
			s := &x.Spans[k]
			s.Service, s.Host, s.Peer, s.Tracepoint = names[uint64(s.Service)%3], 0, 0, 0
			s.Op = table.Op(s.Service, names[uint64(s.Op)%3], s.Kind)
			s.Start, s.End = begun+1e6*s.Start, begun+1e6*s.End
		}
		parts = append(parts, tracetest.Shift(x, trace.Nanos(i)*700e6))
	}
	return inOrder(parts)
}
