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

// App is a running simulated application. It is not safe for concurrent use, but different forks may be used
// concurrently.
type App struct {
	*executor
	byID map[trace.Symbol]int32 // index of a point, or len(points) plus the index of a variable
}

// New returns the application for c. Its fault is inactive until [App.Inject] activates it.
func New(c Config) *App {
	p := build(c.withDefaults())
	a := &App{executor: newExecutor(p), byID: make(map[trace.Symbol]int32, len(p.points)+len(p.variables))}
	for i := range p.points {
		a.byID[p.points[i].id] = int32(i)
	}
	for i := range p.variables {
		a.byID[p.variables[i].id] = int32(len(p.points) + i)
	}
	return a
}

// Fork returns an application in its initial state, as from New. It shares the table and the immutable parts of a.
func (a *App) Fork() *App { return &App{executor: newExecutor(a.program), byID: a.byID} }

// Config returns the configuration of a, with defaults filled in. [New] returns the same application for it.
func (a *App) Config() Config { return a.given }

// Table returns the names of all operations, symbols and attributes of the application. Callers may add to it.
func (a *App) Table() *trace.Table { return a.table }

// Entries returns the entry operations of requests.
func (a *App) Entries() []trace.Op {
	ops := make([]trace.Op, len(a.types))
	for i, t := range a.types {
		ops[i] = a.points[t.entry].op
	}
	return ops
}

// Catalogue returns the tracepoints that agents announce, including the baseline. Their order does not depend on the
// fault. Agents have limited knowledge of callers:
//   - A function or runtime tracepoint with one caller has this caller as its Parent, except for a fraction
//     Config.HintLoss of them, and the enclosing baseline operation as its Owner.
//   - If there are several callers, there is no Parent, and an Owner only if all callers have the same.
//   - Kernel probes only have their process, the service of Op.
//   - Entries of services have no caller.
//   - Calls with the same name are one tracepoint. It has a Parent or an Owner only if all calls have the same.
//   - With Config.UnknownCallers, only the baseline and variables have a Parent or an Owner.
func (a *App) Catalogue() []cct.Tracepoint {
	list := make([]cct.Tracepoint, 0, len(a.points)+len(a.variables))
	at := make(map[trace.Symbol]int, len(a.points)) // index in list
	for i := range a.points {
		p := &a.points[i]
		tp := cct.Tracepoint{
			ID: p.id, Op: p.op, Cost: time.Duration(p.cost), Bytes: p.bytes, Layer: p.layer, Kind: cct.SpanPoint,
			Baseline: p.baseline,
		}
		if p.layer == cct.Kernel {
			tp.Kind = cct.ProbePoint
		} else if p.action != enter && (p.baseline || !a.config.UnknownCallers) {
			if p.owner >= 0 && !p.severalOwners {
				tp.Owner = a.points[p.owner].op
			}
			known := unit(mix(mix(a.config.Seed, streamHints), uint64(i))) >= a.config.HintLoss
			if p.callers == 1 && known {
				tp.Parent = a.points[p.parent].id
			}
		}
		if k, ok := at[p.id]; ok {
			if list[k].Parent != tp.Parent {
				list[k].Parent = 0
			}
			if list[k].Owner != tp.Owner {
				list[k].Owner = 0
			}
			continue
		}
		at[p.id] = len(list)
		list = append(list, tp)
	}
	for i := range a.variables {
		v := &a.variables[i]
		p := &a.points[v.point]
		tp := cct.Tracepoint{
			ID:     v.id,
			Op:     p.op,
			Parent: p.id,
			Cost:   time.Duration(v.cost),
			Bytes:  30,
			Layer:  cct.App,
			Kind:   cct.VariablePoint,
		}
		if p.baseline {
			tp.Owner = p.op
		} else if p.owner >= 0 && !p.severalOwners {
			tp.Owner = a.points[p.owner].op
		}
		list = append(list, tp)
	}
	return list
}

// Plan selects the enabled tracepoints of requests.
type Plan struct {
	Version int64
	Arms    []Arm
}

// Arm is a random fraction of the requests, with its own enabled tracepoints. The shares of a plan's arms must add up
// to at most 1. Requests outside all arms, or excluded by their arm's Rate, have only the baseline and no arm.
type Arm struct {
	Name  trace.Symbol
	Share float64               // fraction of all requests
	On    map[trace.Symbol]bool // by ID of the tracepoint or variable; unknown IDs are ignored
	Rate  float64               // fraction of the arm's requests that are instrumented; all if 0
}

// compiledArm is an arm with On by index.
type compiledArm struct {
	Arm
	points, variables []bool
}

func (a *App) compile(plan *Plan) []compiledArm {
	if plan == nil {
		return nil
	}
	arms := make([]compiledArm, len(plan.Arms))
	for i, arm := range plan.Arms {
		arms[i] = compiledArm{arm, make([]bool, len(a.points)), make([]bool, len(a.variables))}
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

// selectArm selects the arm of the request with the given seed.
func (a *App) selectArm(arms []compiledArm, version int64, seed uint64) {
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

// Inject activates the fault from time at on.
func (a *App) Inject(at trace.Nanos) { a.inject = int64(at) }

// Requests executes the requests that arrive in [from, to) under plan, and yields their traces in the order of arrival.
// A nil plan means plan 0, the baseline. A trace is valid until the next iteration. Between calls, from must not
// decrease.
//
// A trace has the spans of the baseline and of enabled tracepoints, as children of the nearest emitted span above them.
// Spans of tracepoints have Tracepoint set. The first span of each service has the attributes sibyl.plan (a number)
// and, in an arm, sibyl.arm. SERVER and CONSUMER spans have host.name, k8s.pod.name, service.instance.id,
// service.version and http.response.status_code. CLIENT and PRODUCER spans have attributes of their callees. Other
// attributes exist if their variable is enabled.
func (a *App) Requests(from, to trace.Nanos, plan *Plan) iter.Seq[*trace.Trace] {
	return func(yield func(*trace.Trace) bool) {
		arms, version := a.compile(plan), int64(0)
		if plan != nil {
			version = plan.Version
		}
		a.arrivals(int64(from), int64(to), func(t int64, seed uint64) bool {
			a.selectArm(arms, version, seed)
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

// arrivals calls yield for each request that arrives in [from, to), until yield returns false. Arrivals are a Poisson
// process with a daily cycle. They depend only on the seed, not on how time is divided into calls.
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

// Executed returns the tracepoints and variables, without the baseline, that requests have executed so far, whether
// enabled or not. Fractions of tracepoints are relative to their number.
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

// Executions returns the number of executions of points so far, whether enabled or not.
func (a *App) Executions() int64 { return a.nodes }

// traceID returns the trace ID of the request with the given seed.
func traceID(seed uint64) (id trace.ID) {
	binary.BigEndian.PutUint64(id[:8], mix(seed, saltTrace))
	binary.BigEndian.PutUint64(id[8:], max(mix(seed, saltTrace+1), 1))
	return id
}
