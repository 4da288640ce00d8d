package wild

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// mostSpansPerSeed bounds the spans of a seed, so that three seeds take a few minutes.
const mostSpansPerSeed = 4e6

// item is a fault or a harmless event of the schedule.
type item struct {
	at     trace.Nanos
	length time.Duration
	kind   string
	fault  bool
}

// generator lets an application run: traffic, faults and harmless events.
type generator struct {
	seed    uint64
	app     *app
	items   []item
	end     trace.Nanos
	now     trace.Nanos
	events  []happened
	faults  []*fault
	skipped []string // kinds of faults without a place in the application
	current *fault   // the active fault, or the last one

	later []change
	open  endings
	enc   *encoder
	spans int
}

// happened is a harmless event.
type happened struct {
	kind    string
	at      trace.Nanos
	service *service // that changed
}

// change is something that will happen.
type change struct {
	at trace.Nanos
	do func()
}

func newGenerator(seed uint64) *generator {
	g := &generator{seed: seed, app: newApp(seed), now: begin}
	g.schedule()
	g.app.limit(mostSpansPerSeed, g.end.Sub(begin))
	g.enc = newEncoder(g.app)
	return g
}

func (g *generator) minutes(low, high float64) time.Duration {
	return time.Duration(g.app.between(low, high) * float64(time.Minute)).Round(time.Second)
}

// schedule draws the times of all kinds of faults and events, in random order with healthy time between them. The first
// few faults come before any event.
func (g *generator) schedule() {
	rng := g.app.rng
	faults, events := slices.Clone(faultKinds), slices.Clone(eventKinds)
	rng.Shuffle(len(faults), func(i, k int) { faults[i], faults[k] = faults[k], faults[i] })
	rng.Shuffle(len(events), func(i, k int) { events[i], events[k] = events[k], events[i] })
	before := 4 + rng.IntN(4)
	at := begin.Add(g.minutes(30, 40))
	add := func(kind string, isFault bool, length time.Duration) {
		g.items = append(g.items, item{at, length, kind, isFault})
		at = at.Add(length + g.minutes(9, 15))
	}
	for len(faults) > 0 || len(events) > 0 {
		if before > 0 || len(events) == 0 || len(faults) > 0 && rng.IntN(len(faults)+len(events)) < len(faults) {
			length := g.minutes(6, 9)
			if faults[0] == "leak" {
				length = g.minutes(25, 30)
			}
			add(faults[0], true, length)
			faults = faults[1:]
			before--
		} else {
			add(events[0], false, lasting(events[0]))
			events = events[1:]
		}
	}
	g.end = at
}

// at plans do for time at.
func (g *generator) at(at trace.Nanos, do func()) {
	g.later = append(g.later, change{at, do})
	slices.SortStableFunc(g.later, func(a, b change) int { return cmp.Compare(a.at, b.at) })
}

// lastEvent returns the kind of the latest harmless event, or "none" before the first.
func (g *generator) lastEvent() string {
	if len(g.events) == 0 {
		return "none"
	}
	return g.events[len(g.events)-1].kind
}

// run generates the traces and passes each to emit, encoded, in the order of their last timestamps. It stops at the
// first error of emit.
func (g *generator) run(emit func(end trace.Nanos, w *recorded, data []byte) error) error {
	g.app.noise = 0
	minute := begin
	for g.now < g.end {
		for ; minute <= g.now; minute = minute.Add(time.Minute) {
			const kept, spread = 0.9, 0.15
			g.app.noise = kept*g.app.noise + math.Sqrt(1-kept*kept)*spread*g.app.rng.NormFloat64()
		}
		rate := g.app.rate() * g.app.traffic * math.Exp(g.app.noise)
		g.now = g.now.Add(time.Duration(g.app.rng.ExpFloat64() / rate * float64(time.Second)))
		g.happen()
		if err := g.flush(g.now, emit); err != nil {
			return err
		}
		g.request(g.app.pick())
	}
	return g.flush(trace.MaxNanos, emit)
}

// happen makes the changes that are due, and starts the next item of the schedule.
func (g *generator) happen() {
	for len(g.later) > 0 && g.later[0].at <= g.now {
		do := g.later[0].do
		g.later = g.later[1:]
		do()
	}
	for len(g.items) > 0 && g.items[0].at <= g.now {
		it := g.items[0]
		g.items = g.items[1:]
		if it.fault {
			if !g.inject(it.kind, it.length, g.near()) {
				g.skipped = append(g.skipped, it.kind)
			}
			continue
		}
		s := g.concerned()
		changed := g.event(it.kind, s)
		if changed == nil {
			it.kind = "restart"
			changed = g.event(it.kind, s)
		}
		g.events = append(g.events, happened{it.kind, g.now, changed})
	}
}

// near returns the service of the latest event in half of the cases, because faults often follow a change, and nil
// otherwise.
func (g *generator) near() *service {
	if len(g.events) == 0 || g.app.chance(0.5) {
		return nil
	}
	return g.events[len(g.events)-1].service
}

// concerned returns a random service that exports spans.
func (g *generator) concerned() *service {
	for {
		if s := g.app.services[g.app.rng.IntN(len(g.app.services))]; !s.unseen {
			return s
		}
	}
}

// request executes a request now.
func (g *generator) request(t *requestType) {
	x := g.app.execute(t, g.now)
	if f := g.current; f != nil && t.nature == request && g.now < f.window.To {
		f.all++
		if x.touched {
			f.touched++
		}
	}
	for _, w := range x.traces {
		g.spans += len(w.spans)
		heap.Push(&g.open, ending{w.end(), w, g.enc.append(nil, w)})
	}
}

// flush emits the traces that have ended by until.
func (g *generator) flush(until trace.Nanos, emit func(trace.Nanos, *recorded, []byte) error) error {
	for len(g.open) > 0 && g.open[0].at <= until {
		next := g.open[0]
		heap.Pop(&g.open)
		if err := emit(next.at, next.trace, next.data); err != nil {
			return err
		}
	}
	return nil
}

// ending is a trace with its end.
type ending struct {
	at    trace.Nanos
	trace *recorded
	data  []byte
}

// endings is a heap of traces, by their ends.
type endings []ending

func (e endings) Len() int { return len(e) }

func (e endings) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[k].at), e[i].trace.id.Compare(e[k].trace.id)) < 0
}

func (e endings) Swap(i, k int) { e[i], e[k] = e[k], e[i] }

// Push implements heap.Interface.
func (e *endings) Push(x any) {
	if w, ok := x.(ending); ok {
		*e = append(*e, w)
	}
}

// Pop implements heap.Interface.
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
