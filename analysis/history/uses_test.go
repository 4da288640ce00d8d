package history

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// service returns the use of a service, or the zero value.
func (u *Uses) service(table *trace.Table, name string) ServiceUse {
	for _, s := range u.Services {
		if table.Text(s.Service) == name {
			return s
		}
	}
	return ServiceUse{}
}

// Every call counts once, now or as usual: at its service, at an operation, between two services and in the trend.
func TestUses(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	all := tracetest.Instances(4)
	play(h, f, 0, 30*time.Minute, all)
	all[0].Fails = 0.5
	play(h, f, 30*time.Minute, 40*time.Minute, all)
	now := Interval{trace.Nanos(30 * time.Minute), trace.Nanos(40 * time.Minute)}
	cart := trace.SymbolOf([]byte("cart"))
	u := h.Uses(now, 0, 20, cart)
	if u.From != 0 || u.Bin != 2*time.Minute || u.Now != now {
		t.Errorf("from %v by %v until %v", u.From, u.Bin, u.Now)
	}
	for _, name := range []string{"gateway", "cart"} {
		s := u.service(f.Table, name)
		if s.Now.Calls != 1200 || s.Usual.Calls != 3600 || s.Known != 30*time.Minute || s.Opaque {
			t.Errorf("%s: %+v", name, s.Use)
		}
		sum, operations := Usage{}, Usage{}
		for _, x := range s.Series {
			sum.Add(x)
		}
		for _, o := range s.Operations {
			operations.Calls += o.Now.Calls + o.Usual.Calls
			operations.Failed += o.Now.Failed + o.Usual.Failed
			if (o.Series != nil) != (name == "cart") {
				t.Errorf("%s: %d bins of an operation", name, len(o.Series))
			}
		}
		both := s.Now
		both.Add(s.Usual)
		if len(s.Series) != 20 || sum != both || operations.Calls != both.Calls || operations.Failed != both.Failed {
			t.Errorf("%s: trend %+v, operations %+v, want %+v", name, sum, operations, both)
		}
	}
	s := u.service(f.Table, "cart")
	if share := float64(s.Now.Failed) / 1200; math.Abs(share-0.125) > 0.04 || s.Usual.Failed != 0 {
		t.Errorf("%v of the calls fail now, %d usually", share, s.Usual.Failed)
	}
	if len(u.Calls) != 1 || u.Calls[0].Now.Calls != 1200 || u.Calls[0].Callee != cart {
		t.Errorf("calls between services: %+v", u.Calls)
	}
	instances, calls := 0, uint64(0)
	for _, x := range h.Instances.Uses(cart, now, now.From) {
		if f.Table.Text(x.Key) == "k8s.pod.name" {
			instances++
			calls += x.Now.Calls
			if x.First > trace.Nanos(time.Minute) || x.Last != now.To {
				t.Errorf("an instance from %v to %v", x.First, x.Last)
			}
		}
	}
	if instances != 4 || calls != 1200 {
		t.Errorf("%d instances with %d calls", instances, calls)
	}
}

// Skipped times are not usual, but appear in the trend.
func TestUsesOfSkippedTimes(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	play(h, f, 0, 40*time.Minute, tracetest.Instances(2))
	cart := trace.SymbolOf([]byte("cart"))
	h.Skip(1, Interval{trace.Nanos(10 * time.Minute), trace.Nanos(20*time.Minute) - 1}, cart)
	u := h.Uses(Interval{trace.Nanos(30 * time.Minute), trace.Nanos(40 * time.Minute)}, 0, 40, 0)
	if s := u.service(f.Table, "cart"); s.Usual.Calls != 2400 ||
		s.Known != 20*time.Minute || s.Series[15].Calls != 120 {
		t.Errorf("cart: usually %+v in %v, trend %v", s.Usual, s.Known, s.Series[15])
	}
	if s := u.service(f.Table, "gateway"); s.Usual.Calls != 3600 || s.Known != 30*time.Minute {
		t.Errorf("gateway: usually %+v in %v", s.Usual, s.Known)
	}
}

// Calls of a skipped time stay separate from usual ones when their slices are joined to minutes.
func TestUsesOfSkippedMinute(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	healthy, slow := tracetest.Instances(2), tracetest.Instances(2)
	for i := range slow {
		slow[i].Slower = 100
	}
	const onset = 10*time.Minute + 30*time.Second
	play(h, f, 0, onset, healthy)
	play(h, f, onset, 20*time.Minute, slow)
	h.Skip(1, Interval{trace.Nanos(onset), trace.Nanos(20*time.Minute) - 1})
	play(h, f, 20*time.Minute, time.Hour, healthy)
	s := h.Uses(Interval{trace.Nanos(50 * time.Minute), trace.Nanos(time.Hour)}, 0, 40, 0)
	cart := s.service(f.Table, "cart")
	if usual := time.Duration(cart.Usual.Nanos / int64(cart.Usual.Calls)); usual > 110*time.Millisecond {
		t.Errorf("calls take %v usually, those before and after the skipped time 100ms", usual)
	}
}

// If a service has no CLIENT spans, its time next to its calls may be time on the wire. It counts as both, because
// traces show it as the own time of the service.
func TestUsesWithoutClientSpans(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	x, tally := critpath.NewExtractor(critpath.DefaultOptions()), NewTally()
	for at := range 30 {
		tr := f.Request(trace.Nanos(at)*trace.Nanos(time.Second), 0,
			tracetest.Instance{Version: "1", Slower: 1, Fails: 0})
		tr.Spans[2].Parent = 1
		tr.Spans = slices.Delete(tr.Spans, 1, 2)
		tr.Attrs = nil
		tally.Observe(x.Extract(tr))
	}
	h.Merge(tally)
	u := h.Uses(Interval{0, trace.Nanos(time.Minute)}, 0, 1, f.Table.Symbol("gateway"))
	const around = 30 * int64(4*time.Millisecond) // next to the calls, in the gateway
	s := u.service(f.Table, "gateway")
	if s.Now.Nanos != around || s.Series[0].Nanos != around || s.Now.Calls != 30 {
		t.Errorf("gateway: %+v", s.Use)
	}
	if len(s.Operations) != 1 || s.Operations[0].Now.Nanos != around || s.Operations[0].Series[0].Nanos != around {
		t.Errorf("its operations: %+v", s.Operations)
	}
	if len(u.Calls) != 1 || u.Calls[0].Now.Nanos != around || u.Calls[0].Now.Calls != 30 {
		t.Errorf("calls between services: %+v", u.Calls)
	}
}

// An empty history has no uses.
func TestUsesOfNothing(t *testing.T) {
	u := NewSites(&trace.Table{}).Uses(Interval{0, trace.Nanos(time.Minute)}, 0, 60, 0)
	if len(u.Services)+len(u.Calls) > 0 {
		t.Errorf("%+v", u)
	}
}

func BenchmarkUses(b *testing.B) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	fill(b, h, MaxSites)
	b.ReportAllocs()
	for b.Loop() {
		h.Uses(Interval{trace.Nanos(110 * time.Minute), trace.Nanos(120 * time.Minute)},
			trace.Nanos(60*time.Minute), 60, 0)
	}
}

// fill adds n sites in 200 services. Each has a call every minute for two hours, and every ten seconds at the end.
func fill(b *testing.B, h *Sites, n int) {
	b.Helper()
	tally := NewTally()
	for i := range n {
		service := h.table.Symbol("service " + string(rune('a'+i%200)))
		op := h.table.Op(service, h.table.Symbol("operation "+string(rune('a'+i/200))), trace.Server)
		number := tally.add(tallySite{tallyKey: tallyKey{SiteKey: SiteKey{Op: op}}, base: op, service: service})
		for at := range 120 * SlicesPerMinute {
			if at%SlicesPerMinute == 0 || at >= 115*SlicesPerMinute {
				c := tally.slice(at).cell(number)
				c.add(spent{nanos: int64(i)})
				c.count(Shape{Hash: callgraph.Leaf, answered: true}, 1)
			}
		}
	}
	for _, s := range tally.slices {
		s.entry(entryKey{root: 1}).add(spent{})
	}
	h.Merge(tally)
	h.Age(trace.Nanos(120 * time.Minute))
}
