package sim

import (
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// App is a simulated application while it runs. It is not safe for concurrent use; apps that [App.Fork] returned are, beside
// each other.
type App struct {
	*player
	byID map[trace.Symbol]int32 // index of a point; of a variable, from len(points) up
}

// New returns the application that c chooses, healthy.
func New(c Config) *App {
	p := build(c.withDefaults())
	a := &App{player: newPlayer(p), byID: make(map[trace.Symbol]int32, len(p.points)+len(p.variables))}
	for i := range p.points {
		a.byID[p.points[i].id] = int32(i)
	}
	for i := range p.variables {
		a.byID[p.variables[i].id] = int32(len(p.points) + i)
	}
	return a
}

// Fork returns the same application as New would, sharing everything that does not change while it runs: the table too.
func (a *App) Fork() *App { return &App{player: newPlayer(a.program), byID: a.byID} }

// Config returns the configuration with its defaults; [New] makes the same application of it.
func (a *App) Config() Config { return a.given }

// Table returns the names of all operations, symbols and attributes of the application. Callers may add to it.
func (a *App) Table() *trace.Table { return a.table }

// Entries returns the operations at which requests enter.
func (a *App) Entries() []trace.Op {
	ops := make([]trace.Op, len(a.types))
	for i, t := range a.types {
		ops[i] = a.points[t.entry].op
	}
	return ops
}

// Catalogue returns the tracepoints that the agents announce, the baseline included, in a fixed order that says nothing
// about the fault. What agents know:
//   - A function or runtime tracepoint with one caller names it as its Parent, but for a fraction Config.HintLoss of them,
//     and the baseline operation it runs in as its Owner.
//   - One with several callers names no Parent, and an Owner only if all callers run in the same baseline operation.
//   - Kernel probes know their process, which is the service of Op, and nothing else.
//   - Entries of services know no caller.
func (a *App) Catalogue() []cct.Tracepoint {
	list := make([]cct.Tracepoint, 0, len(a.points)+len(a.variables))
	for i := range a.points {
		p := &a.points[i]
		tp := cct.Tracepoint{
			ID: p.id, Op: p.op, Cost: time.Duration(p.cost), Bytes: p.bytes, Layer: p.layer, Kind: cct.SpanPoint,
			Baseline: p.baseline,
		}
		if p.layer == cct.Kernel {
			tp.Kind = cct.ProbePoint
		} else if p.action != enter {
			if p.owner >= 0 && !p.owners {
				tp.Owner = a.points[p.owner].op
			}
			known := unit(mix(mix(a.config.Seed, streamHints), uint64(i))) >= a.config.HintLoss
			if p.callers == 1 && known {
				tp.Parent = a.points[p.parent].id
			}
		}
		list = append(list, tp)
	}
	for i := range a.variables {
		v := &a.variables[i]
		p := &a.points[v.point]
		tp := cct.Tracepoint{ID: v.id, Op: p.op, Parent: p.id, Cost: time.Duration(v.cost), Bytes: 30, Layer: cct.App, Kind: cct.VariablePoint}
		if p.baseline {
			tp.Owner = p.op
		} else if p.owner >= 0 && !p.owners {
			tp.Owner = a.points[p.owner].op
		}
		list = append(list, tp)
	}
	return list
}

// Plan says what is switched on for which requests.
type Plan struct {
	Version int64
	Arms    []Arm
}

// Arm is a random share of the requests that has a tracepoint set of its own. The shares of a plan's arms add up to at most
// 1; the other requests, and those of an arm that its Rate leaves out, run the baseline only and name no arm.
type Arm struct {
	Name  trace.Symbol
	Share float64               // of all requests
	On    map[trace.Symbol]bool // by ID of the tracepoint or variable; unknown ones are ignored
	Rate  float64               // fraction of the arm's requests that are instrumented; 0: all
}

// compiled is an arm in a form that can be asked quickly.
type compiled struct {
	Arm
	points, variables []bool
}

func (a *App) compile(plan *Plan) []compiled {
	if plan == nil {
		return nil
	}
	arms := make([]compiled, len(plan.Arms))
	for i, arm := range plan.Arms {
		arms[i] = compiled{arm, make([]bool, len(a.points)), make([]bool, len(a.variables))}
		for id, on := range arm.On {
			k, ok := a.byID[id]
			switch {
			case !ok || !on:
			case int(k) < len(a.points):
				arms[i].points[k] = true
			default:
				arms[i].variables[int(k)-len(a.points)] = true
			}
		}
	}
	return arms
}

// choose decides by the trace's identity which arm the request that begins belongs to.
func (a *App) choose(arms []compiled, version int64, seed uint64) {
	a.on, a.captured, a.arm, a.version = a.none, a.none, 0, version
	u := unit(mix(seed, saltArm))
	for i := range arms {
		arm := &arms[i]
		if u -= arm.Share; u >= 0 {
			continue
		}
		if arm.Rate > 0 && unit(mix(seed, saltRate)) >= arm.Rate {
			return
		}
		a.on, a.captured, a.arm = arm.points, arm.variables, arm.Name
		return
	}
}

// Inject makes the fault present from at on.
func (a *App) Inject(at trace.Nanos) { a.inject = int64(at) }

// Requests executes the requests that arrive in [from, to) under plan and yields their traces in the order of arrival. nil
// is plan 0, the baseline. A trace is valid until the next. Time must not run backwards from call to call.
//
// The spans of the baseline and of switched-on tracepoints are emitted, as children of the nearest emitted span above them.
// Spans of switched-on tracepoints carry Tracepoint; the first span of each service in the trace carries sibyl.plan (a
// number) and sibyl.arm (text, if there is one). SERVER and CONSUMER spans carry host.name, service.version and
// http.response.status_code; other attributes are there if their variable is on.
func (a *App) Requests(from, to trace.Nanos, plan *Plan) iter.Seq[*trace.Trace] {
	return func(yield func(*trace.Trace) bool) {
		arms, version := a.compile(plan), int64(0)
		if plan != nil {
			version = plan.Version
		}
		a.arrivals(int64(from), int64(to), func(t int64, seed uint64) bool {
			a.choose(arms, version, seed)
			a.request(seed, t, a.types[a.typeOf(seed)].entry)
			return yield(&a.trace)
		})
	}
}

// typeOf returns the index of the request type of the request with the given seed.
func (p *program) typeOf(seed uint64) int {
	u := unit(mix(seed, saltType))
	return min(sort.Search(len(p.types), func(i int) bool { return u < p.types[i].cumulative }), len(p.types)-1)
}

// arrivals calls yield for every request that arrives in [from, to), until it returns false. Arrivals are a Poisson process
// whose rate follows the time of day. They depend on the seed only, not on how time is cut into calls.
func (p *program) arrivals(from, to int64, yield func(t int64, seed uint64) bool) {
	src := &source{}
	rng := rand.New(src)
	for slot := from / second; slot*second < to; slot++ {
		seed := mix(mix(p.config.Seed, streamArrivals), uint64(slot))
		src.state = mix(seed, saltGap)
		rate := p.rateAt(slot * second)
		t := slot * second
		for k := uint64(0); ; k++ {
			t += int64(rng.ExpFloat64() / rate * float64(second))
			if t >= min((slot+1)*second, to) {
				break
			}
			if t >= from && !yield(t, mix(seed, k)) {
				return
			}
		}
	}
}

const second = int64(time.Second)

// rateAt returns the requests per second at time t.
func (p *program) rateAt(t int64) float64 {
	day := float64(t%(24*3600*second)) / float64(24*3600*second)
	return p.config.Rate * (1 + p.config.Diurnal*math.Sin(2*math.Pi*day+p.phase))
}

// Executed returns the tracepoints and variables, those of the baseline left out, that at least one request has executed
// so far, switched on or not: the denominator of every share of tracepoints.
func (a *App) Executed() map[trace.Symbol]bool {
	set := make(map[trace.Symbol]bool)
	for i, done := range a.executed {
		if p := &a.points[i]; done && !p.baseline {
			set[p.id] = true
		}
	}
	for i, done := range a.executedVariable {
		if done {
			set[a.variables[i].id] = true
		}
	}
	return set
}

// Executions returns how many executions of points there have been so far, switched on or not.
func (a *App) Executions() int64 { return a.nodes }

// traceID returns the identity of the trace of the request with the given seed.
func traceID(seed uint64) (id trace.ID) {
	binary.BigEndian.PutUint64(id[:8], mix(seed, saltTrace))
	binary.BigEndian.PutUint64(id[8:], max(mix(seed, saltTrace+1), 1))
	return id
}
