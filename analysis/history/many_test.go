package history

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Load is the traffic of a large installation.
type Load struct {
	Every  int // slices from one with calls to the next
	Shapes int // per site and slice
	Calls  uint64
}

// ManySites returns the history of two hours of MaxSites sites and maxInstances instances, and its last three minutes.
func ManySites(l Load) (*Sites, Interval) {
	table := &trace.Table{}
	h := NewSites(table)
	service := [50]trace.Symbol{}
	for i := range service {
		service[i] = table.Symbol(fmt.Sprintf("service%d", i))
	}
	all := NewTally()
	for i := range MaxSites {
		n := i % len(service)
		op := table.Op(service[n], table.Symbol(fmt.Sprintf("op%d", i)), trace.Client)
		target := table.Op(service[(n+1+i/50%7)%len(service)], table.Symbol(fmt.Sprintf("target%d", i)), trace.Server)
		all.add(tallySite{tallyKey{SiteKey: SiteKey{Op: op.To(target)}}, op, target, service[n], true, 0})
	}
	for i := range maxInstances {
		x := place{service: trace.Symbol(i / maxValues)}
		x.values[1] = trace.Symbol(1 + i)
		all.places.list = append(all.places.list, x)
	}
	r := rand.New(rand.NewPCG(1, 1))
	const minutes = int(Span/time.Minute) + 5
	for minute := range minutes {
		t := &Tally{numbers: all.numbers, sites: all.sites, places: all.places, slices: make(map[Slice]*tallySlice)}
		for k := 0; k < int(SlicesPerMinute); k += l.Every {
			s := t.slice(Slice(minute)*SlicesPerMinute + Slice(k))
			*s.entry(entryKey{root: 1}) = tallyCell{calls: 1000, nanos: 1e11, logs: 1000 * logOf(1e8)}
			for i := range MaxSites {
				l.count(s.cell(int32(i)), r)
				if i < maxInstances {
					*t.place(s, int32(i+1)) = placeCell{l.Calls, 1, int64(l.Calls)*1e6 + timeUnit*r.Int64N(1000)}
				}
			}
		}
		h.Merge(t)
		if minute%20 == 0 || minute > minutes-5 { // the content is the same as with an Age every minute
			h.Age(trace.Nanos(minute+1) * trace.Nanos(time.Minute))
		}
	}
	return h,
		Interval{trace.Nanos(minutes-3) * trace.Nanos(time.Minute), trace.Nanos(minutes) * trace.Nanos(time.Minute)}
}

// count adds the calls of a site in a slice. Each shape gets one, except the first, which gets the others.
func (l Load) count(c *tallyCell, r *rand.Rand) {
	c.calls, c.nanos = l.Calls, int64(l.Calls)*1e6+timeUnit*r.Int64N(1000)
	c.logs = int64(l.Calls) * (logOf(1e6) - 1) // as if their coefficient of variation were 0.4
	for k := range l.Shapes {
		c.shapes = append(c.shapes, shapeCount{Shape{uint64(k + 1), k > 0, true}, 1})
	}
	c.shapes[0].calls = l.Calls - uint64(l.Shapes-1)
}
