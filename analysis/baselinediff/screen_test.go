package baselinediff

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/trace"
)

// randomCalls makes the calls of a random application: sites with very different numbers of calls, some of them
// borders, some without a known target, some that appear late. Now and then a site becomes slow or changes its shapes.
type randomCalls struct {
	*rand.Rand
	table    *trace.Table
	services []trace.Symbol
	sites    []randomSite
}

type randomSite struct {
	tallySite
	calls   float64 // in an epoch
	nanos   float64
	shapes  []shapeCount
	slow    float64
	changed bool
}

func newRandomCalls(seed uint64) *randomCalls {
	c := &randomCalls{Rand: rand.New(rand.NewPCG(seed, 1)), table: &trace.Table{}}
	for i := range 7 {
		c.services = append(c.services, c.table.Symbol(fmt.Sprintf("s%d", i)))
	}
	for range 40 {
		c.add()
	}
	return c
}

// add adds a site. Its caller may be any other step.
func (c *randomCalls) add() {
	service := c.services[c.IntN(len(c.services))]
	kind := []trace.Kind{trace.Server, trace.Client, trace.Internal}[c.IntN(3)]
	op := c.table.Op(service, c.table.Symbol(fmt.Sprintf("op%d", c.IntN(12))), kind)
	s := tallySite{siteKey: siteKey{op: op}, base: op, service: service}
	if k := c.IntN(len(c.sites) + 1); k < len(c.sites) {
		s.parent = c.sites[k].op
	}
	s.client = c.table.Operation(op).Kind == trace.Client
	if s.client && c.IntN(3) > 0 {
		kind := []trace.Kind{trace.Server, trace.External}[c.IntN(2)]
		s.target = c.table.Op(c.services[c.IntN(len(c.services))], c.table.Symbol(fmt.Sprintf("op%d", c.IntN(12))), kind)
		s.op = op.To(s.target)
	}
	if s.parent != 0 && c.IntN(6) == 0 {
		s.border, s.client, s.target, s.op = true, true, 0, op
		s.service = c.services[c.IntN(len(c.services))]
	}
	if slices.ContainsFunc(c.sites, func(x randomSite) bool { return x.siteKey == s.siteKey }) {
		return
	}
	x := randomSite{tallySite: s, calls: 0.05 * float64(int(1)<<c.IntN(9)), nanos: 1e5 * (1 + 9*c.Float64()), slow: 1}
	if !s.border {
		for k := range 1 + c.IntN(3) {
			x.shapes = append(x.shapes, shapeCount{shape{uint64(1 + c.IntN(3) + 3*k), c.IntN(4) == 0, c.IntN(4) > 0}, 0})
		}
	}
	c.sites = append(c.sites, x)
}

// tally returns the calls of the epoch that ends at a slice. A few of them arrive late.
func (c *randomCalls) tally(end slice) *Tally {
	t := NewTally()
	for i := range c.sites {
		s := &c.sites[i]
		switch c.IntN(600) {
		case 0:
			s.slow = 1 + 2*c.Float64()
		case 1:
			s.changed = true
		case 2, 3, 4, 5, 6, 7:
			s.slow, s.changed = 1, false
		}
		n := int(s.calls)
		if c.Float64() < s.calls-float64(n) {
			n++
		}
		number := t.add(s.tallySite)
		for range n {
			at := end - 1
			if c.IntN(20) == 0 {
				at -= slice(c.IntN(4))
			}
			if c.IntN(3000) == 0 {
				at -= slice(c.IntN(400))
			}
			into := t.slice(at)
			if into.requests == 0 || c.IntN(4) == 0 {
				into.requests++
				into.duration += 2e6
			}
			cell := into.cell(number)
			cell.add(timeUnit * int64(s.nanos*s.slow*c.ExpFloat64()/timeUnit))
			if len(s.shapes) > 0 {
				k := min(c.IntN(len(s.shapes)), c.IntN(len(s.shapes)))
				if s.changed {
					k = len(s.shapes) - 1
				}
				if c.IntN(2000) == 0 {
					cell.count(shape{uint64(100 + c.IntN(20)), false, true})
				} else {
					cell.count(s.shapes[k].shape)
				}
			}
		}
	}
	return t
}

// TestBrief compares what Brief says with what Steady says, at the end of each epoch of random histories in which calls
// arrive late, sites appear, times are skipped and accepted, and other windows are compared in between. A history that
// is restored now and then says the same, and has the same content.
func TestBrief(t *testing.T) {
	judged, passed, scores := 0, 0, 0
	for seed := range uint64(3) {
		c := newRandomCalls(seed)
		h, restored := NewSites(c.table), NewSites(c.table)
		both := func(f func(h *Sites)) {
			f(h)
			f(restored)
		}
		first := slice(180_000_000) + slice(c.IntN(6))
		for end := first; end < first+1100; end++ {
			now := trace.Nanos(end) * trace.Nanos(Slice)
			if c.IntN(60) == 0 {
				c.add()
			}
			tally := c.tally(end)
			both(func(h *Sites) {
				h.Merge(tally)
				h.Age(now)
				for i := range h.series {
					if h.sites[i].op%3 > 0 && h.series[i].week == nil {
						h.series[i].week = &week{} // known for long
					}
				}
			})
			window := Interval{now.Add(-3 * time.Minute), now}
			if skipping := int(end-first) % 400; skipping > 300 && skipping < 330 {
				var services []trace.Symbol // all; later some
				if skipping > 315 {
					services = c.services[:1+skipping/8%2]
				}
				begin := now.Add(-5*time.Minute - time.Duration(skipping-300)*Slice)
				both(func(h *Sites) { h.Skip(uint64(end-first)/400, Interval{begin, now}, services...) })
			}
			switch c.IntN(100) {
			case 0:
				both(func(h *Sites) { h.Accept(c.services[0], Interval{now.Add(-4 * time.Minute), now}) })
			case 1:
				other := Interval{now.Add(-20 * time.Minute), now.Add(-17 * time.Minute)}
				compareBrief(t, h.Compare(other, Brief), h.Compare(other, Steady), c.table, 0)
			case 2:
				other := Interval{now.Add(-5 * time.Minute), now}
				compareBrief(t, h.Compare(other, Brief), h.Compare(other, Steady), c.table, 0)
			case 3:
				saved := h.AppendBinary(nil)
				if !bytes.Equal(saved, restored.AppendBinary(nil)) {
					t.Fatalf("seed %d, epoch %d: the content depends on restarts", seed, end-first)
				}
				var err error
				if restored, err = DecodeSites(saved, c.table); err != nil {
					t.Fatal(err)
				}
			}
			got, want := h.Compare(window, Brief), h.Compare(window, Steady)
			compareBrief(t, got, want, c.table, 0)
			clear(h.memory.pasts) // what it remembered changes nothing
			compareBrief(t, h.Compare(window, Brief), got, c.table, 0)
			compareBrief(t, restored.Compare(window, Brief), got, c.table, 1e-9) // it adds up sites in another order
			if t.Failed() {
				t.Fatalf("seed %d, epoch %d", seed, end-first)
			}
			for i := range h.verdicts {
				if h.verdicts[i] != (verdict{}) {
					passed++
				}
			}
			judged += len(h.sites)
			for i := range want.Suspects {
				if want.Suspects[i].Score > 0 {
					scores++
				}
			}
		}
	}
	t.Logf("%d of %d sites have a verdict, %d scores", passed, judged, scores)
	if passed < judged/4 || scores < 1000 {
		t.Errorf("%d of %d sites have a verdict, %d scores", passed, judged, scores)
	}
}

// compareBrief compares two comparisons, with a relative tolerance, apart from Soft and from the order of suspects that
// differ by nothing else.
func compareBrief(t *testing.T, got, want Comparison, table *trace.Table, tolerance float64) {
	t.Helper()
	for _, c := range []Comparison{got, want} {
		for i := 1; i < len(c.Suspects); i++ {
			if a, b := &c.Suspects[i-1], &c.Suspects[i]; b.Score > a.Score {
				t.Errorf("the order is wrong: %v before %v", a.Score, b.Score)
			}
		}
		slices.SortFunc(c.Suspects, func(a, b Suspect) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), compareNames(table, a.Service, b.Service))
		})
	}
	if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(Suspect{}, "Soft"), cmpopts.EquateApprox(tolerance, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
