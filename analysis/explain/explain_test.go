package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// world generates observations of requests GET → db, cache with known causes.
type world struct {
	*rand.Rand
	table                  *trace.Table
	get, db, cache         trace.Context
	getOp, dbOp, cacheOp   trace.Op
	edgeGet, edgeDB, edgeC trace.Edge
	requests               []*observation.Observation
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), table: &trace.Table{}}
	op := func(service, name string, kind trace.Kind) trace.Op {
		return w.table.Op(w.table.Symbol(service), w.table.Symbol(name), kind)
	}
	w.getOp, w.dbOp, w.cacheOp = op("shop", "GET", trace.Server), op("db", "select", trace.Client),
		op("cache", "read", trace.Client)
	w.get = w.table.Child(0, w.getOp)
	w.db, w.cache = w.table.Child(w.get, w.dbOp), w.table.Child(w.get, w.cacheOp)
	w.edgeGet, w.edgeDB, w.edgeC = trace.EdgeOf(w.get, 0, w.dbOp), trace.EdgeOf(w.db, 0, 0), trace.EdgeOf(w.cache, 0, 0)
	return w
}

// request adds a request that spends the given times in ms in GET, db and cache. 0 means not executed.
func (w *world) request(get, db, cache float64) *observation.Observation {
	ns := func(ms float64) int64 { return int64(ms * 1e6) }
	o := &observation.Observation{
		Root:  trace.SpanID(w.Uint64() | 1),
		Start: trace.Nanos(len(w.requests)) * 1e8,
		Entry: w.getOp,
	}
	for i := range o.Trace {
		o.Trace[i] = byte(w.Uint32())
	}
	add := func(c, parent trace.Context, op trace.Op, e trace.Edge, nanos int64) {
		if nanos > 0 {
			o.Contexts = append(o.Contexts, observation.ContextCount{
				Context:   c,
				Parent:    parent,
				Op:        op,
				Count:     1,
				Exclusive: nanos,
				Self:      nanos,
				Total:     nanos,
			})
			o.Edges = append(o.Edges, observation.EdgeTime{Edge: e, Context: c, Nanos: nanos})
			o.Duration += time.Duration(nanos)
		}
	}
	add(w.get, 0, w.getOp, w.edgeGet, ns(get))
	add(w.db, w.get, w.dbOp, w.edgeDB, ns(db))
	add(w.cache, w.get, w.cacheOp, w.edgeC, ns(cache))
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
	o.Skeleton = analysis.HashOf(uint64(len(o.Contexts)))
	w.requests = append(w.requests, o)
	return o
}

func (w *world) text(o *observation.Observation, c trace.Context, key, value string) {
	o.Variables = append(o.Variables,
		observation.Variable{Context: c, Key: w.table.Symbol(key), Text: w.table.Symbol(value)})
}

func (w *world) number(o *observation.Observation, c trace.Context, key string, value float64) {
	o.Variables = append(o.Variables,
		observation.Variable{Context: c, Key: w.table.Symbol(key), Number: value, Numeric: true})
}

// either returns yes if cond holds, and no otherwise.
func either[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

// heavy returns a heavy-tailed factor with median 1.
func (w *world) heavy(sigma float64) float64 { return math.Exp(sigma * w.NormFloat64()) }

// noise adds independent variables: 40 % numbers of several distributions, 60 % categories of several sizes.
func (w *world) noise(o *observation.Observation, count int) {
	for i := range count {
		key := fmt.Sprintf("noise%d", i)
		at := []trace.Context{w.get, w.db}[i%2]
		switch i % 5 {
		case 0:
			w.number(o, at, key, w.NormFloat64())
		case 1:
			w.number(o, at, key, float64(w.IntN(5)))
		case 2:
			w.text(o, at, key, fmt.Sprint("v", w.IntN(2)))
		case 3:
			w.text(o, at, key, fmt.Sprint("v", int(math.Abs(w.NormFloat64())*8)))
		case 4:
			w.text(o, at, key, fmt.Sprint("v", w.IntN(60)))
		}
	}
}

// problem returns a problem with the leading edges db, GET and cache.
func (w *world) problem() *detect.Problem {
	return &detect.Problem{Level: group.LevelGroup, Edges: []group.EdgeShare{
		{Edge: w.edgeDB, Context: w.db, Score: 0.7},
		{Edge: w.edgeGet, Context: w.get, Score: 0.2},
		{Edge: w.edgeC, Context: w.cache, Score: 0.1},
	}}
}

func (w *world) explain() []detect.Explanation {
	return Associate(w.problem(), w.requests, w.table, Options{}).Explanations
}

// format returns explanations as text, one per line.
func (w *world) format(all []detect.Explanation) string {
	var b strings.Builder
	for _, x := range all {
		target := "duration"
		if x.Target != 0 {
			target = map[trace.Edge]string{
				w.edgeDB: "db", w.edgeGet: "GET", w.edgeC: "cache",
				trace.ContextEdge(w.db): "all of db", trace.ContextEdge(w.get): "all of GET",
				trace.ContextEdge(w.cache): "all of cache",
			}[x.Target]
		}
		at := ""
		if path := w.table.Path(x.Where); len(path) > 0 {
			at = " at " + w.table.OpName(path[len(path)-1])
		}
		value := ""
		if x.Value != "" {
			value = "=" + x.Value
		}
		fmt.Fprintf(&b, "%s: %s%s%s %.0f%% (%.0f..%.0f) p=%.2g remains %.0f%%\n", target, x.Variable, value, at,
			100*x.Effect, 100*x.Low, 100*x.High, x.PValue, 100*x.Remains)
	}
	return b.String()
}

// durations are distributions of unexplained durations.
var durations = map[string]func(w *world) float64{
	"normal":     func(w *world) float64 { return 20 + w.NormFloat64() },
	"log-normal": func(w *world) float64 { return 10 * w.heavy(1) },
	"pareto":     func(w *world) float64 { return 10 / math.Pow(w.Float64(), 1/1.5) },
	"two modes": func(w *world) float64 {
		if w.IntN(20) == 0 {
			return 200 * w.heavy(0.1)
		}
		return 10 * w.heavy(0.1)
	},
}

// At least 95 % of samples report no variable out of 200 independent ones, for any distribution of durations.
func TestExplainNoise(t *testing.T) {
	for name, duration := range durations {
		for _, n := range []int{24, 256} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				named := 0
				const seeds = 20
				for seed := range uint64(seeds) {
					w := newWorld(100 + seed)
					for range n {
						w.noise(w.request(5*w.heavy(0.3), duration(w), 0), 200)
					}
					if got := w.explain(); len(got) > 0 {
						named++
						t.Logf("seed %d: %s", seed, w.format(got))
					}
				}
				if named > seeds/20 {
					t.Errorf("variables reported in %d of %d samples, want at most 5 %%", named, seeds)
				}
			})
		}
	}
}

// A slow value of an attribute is reported in the context nearest to the root. The identifier of the request is not
// reported.
func TestExplainTenant(t *testing.T) {
	for n, want := range map[int]int{40: 10, 64: 17, 256: 20} {
		hits := 0
		for seed := range uint64(20) {
			w := newWorld(seed)
			for range n {
				tenant := fmt.Sprint("t", w.IntN(8))
				db := 10 * w.heavy(0.3)
				if tenant == "t3" {
					db *= 4
				}
				o := w.request(5*w.heavy(0.3), db, 0)
				w.text(o, w.get, "tenant", tenant)
				w.text(o, w.db, "tenant", tenant)
				w.text(o, w.get, "request.id", fmt.Sprint(w.Uint64()))
				w.noise(o, 60)
			}
			got := w.explain()
			if len(got) > 0 && got[0].Variable == "tenant" && got[0].Value == "t3" && got[0].Where == w.get {
				hits++
			}
		}
		if hits < want {
			t.Errorf("%d requests: found in %d of 20 samples, want %d", n, hits, want)
		}
	}
}

// scenarios generate a request with known causes.
var scenarios = map[string]func(w *world){
	"size": func(w *world) { // the time of the db grows with the size; bytes and a rounded estimate correlate with it
		size := w.heavy(1)
		o := w.request(5*w.heavy(0.2), 2*w.heavy(0.2)+10*size, 0)
		w.number(o, w.get, "rows", math.Round(100*size))
		w.number(o, w.get, "bytes", 64*math.Round(100*size))
		w.number(o, w.db, "estimate", size*w.heavy(0.3))
	},
	"confounded": func(w *world) { // tenants of one region are large, but only one tenant is slow
		tenant := w.IntN(9)
		region := tenant / 3
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.3)*either(tenant == 4, 6.0, 1.0), 0)
		w.text(o, w.get, "region", fmt.Sprint("r", region))
		w.text(o, w.get, "tenant", fmt.Sprint("t", tenant))
		w.number(o, w.get, "cart.items", float64(region*4+w.IntN(6)))
	},
	"nested": func(w *world) { // a region is slow; its tenants are just in it
		tenant := w.IntN(9)
		region := tenant / 3
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.3)*either(region == 1, 6.0, 1.0), 0)
		w.text(o, w.get, "region", fmt.Sprint("r", region))
		w.text(o, w.get, "tenant", fmt.Sprint("t", tenant))
	},
	"two": func(w *world) { // two causes in two edges
		hit, n := w.IntN(3) > 0, w.IntN(20)
		o := w.request(5+float64(n)*w.heavy(0.2), either(hit, 10.0, 40.0)*w.heavy(0.2), 0)
		w.text(o, w.get, "cache.hit", fmt.Sprint(hit))
		w.number(o, w.get, "items", float64(n))
	},
	"status": func(w *world) { // numbers that are names
		status := []float64{200, 200, 200, 302, 404, 500}[w.IntN(6)]
		o := w.request(5*w.heavy(0.2), 10*w.heavy(0.2)*either(status == 404, 8.0, 1.0), 0)
		w.number(o, w.get, "http.response.status_code", status)
	},
	"elapsed": func(w *world) { // attributes that repeat the duration
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.5), 0)
		w.number(o, w.get, "elapsed_ms", math.Floor(float64(o.Duration)/1e6))
		w.number(o, w.db, "db.seconds", 0.99*float64(o.Edges[slices.IndexFunc(o.Edges,
			func(e observation.EdgeTime) bool { return e.Context == w.db })].Nanos)/1e9)
	},
	"fallback": func(w *world) { // another context is executed
		w.request(5*w.heavy(0.2), 10*w.heavy(0.2), either(w.IntN(4) == 0, 60.0, 0.0)*w.heavy(0.2))
	},
	"errors": func(w *world) { // failures are slow
		failed := w.IntN(6) == 0
		o := w.request(5*w.heavy(0.2), 10*w.heavy(0.2)*either(failed, 5.0, 1.0), 0)
		o.Contexts[slices.IndexFunc(o.Contexts,
			func(c observation.ContextCount) bool { return c.Context == w.db })].Errors = either[int32](failed, 1, 0)
	},
	"retries": func(w *world) { // as often as it is repeated
		n := 1 + w.IntN(4)
		o := w.request(5*w.heavy(0.2), float64(n)*10*w.heavy(0.2), 0)
		o.Contexts[slices.IndexFunc(o.Contexts,
			func(c observation.ContextCount) bool { return c.Context == w.db })].Count = int32(n)
	},
	"rare": func(w *world) { // 3 % are ten times slower
		rare := w.IntN(33) == 0
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.3)*either(rare, 10.0, 1.0), 0)
		w.text(o, w.get, "tenant", either(rare, "big", fmt.Sprint("t", w.IntN(12))))
	},
	"queue": func(w *world) { // as many as are before it
		o := w.request(5, 1+float64(w.IntN(30))*w.heavy(0.2), 0)
		o.Plan = int64(o.Duration/1e6) - 5 + int64(w.IntN(5)) // stands in for the concurrency; see TestExplain
	},
	"nothing": func(w *world) {
		o := w.request(5*w.heavy(0.5), 10*w.heavy(0.5), 0)
		w.text(o, w.get, "tenant", fmt.Sprint("t", w.IntN(8)))
	},
}

// TestExplain runs the scripts of testdata/explain. Each line of the input is
//
//	SCENARIO [requests] [noise variables] [coarse]
//
// and the output has the explanations of the first of 10 samples, then the number of samples where each variable
// explained the duration.
func TestExplain(t *testing.T) {
	datadriven.Walk(t, "testdata/explain", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				var name string
				n, noise, coarse := 256, 40, ""
				fmt.Sscan(line, &name, &n, &noise, &coarse)
				named := make(map[string]int)
				for seed := range uint64(10) {
					w := newWorld(seed)
					for range n {
						scenarios[name](w)
						w.noise(w.requests[len(w.requests)-1], noise)
					}
					a := associate(w, coarse != "")
					if seed == 0 {
						fmt.Fprintf(&b, "%sjoint %.2f\n", w.format(a.Explanations), a.Joint)
					}
					for _, x := range a.Explanations {
						if x.Target == 0 {
							named[x.Variable+map[bool]string{true: "=" + x.Value}[x.Value != ""]]++
						}
					}
				}
				for _, name := range slices.Sorted(maps.Keys(named)) {
					fmt.Fprintf(&b, "%d× %s\n", named[name], name)
				}
			}
			return b.String()
		})
	})
}

func associate(w *world, coarse bool) Association {
	p := w.problem()
	if coarse {
		p.Level = group.LevelRequestType
		for i := range p.Edges {
			p.Edges[i].Edge = trace.ContextEdge(p.Edges[i].Context)
		}
	}
	return Associate(p, w.requests, w.table, Options{Concurrency: func(o *observation.Observation) float64 {
		if o.Plan == 0 {
			return math.NaN()
		}
		return float64(o.Plan)
	}})
}

// The order of requests and duplicates of them do not matter.
func TestExplainDeterminism(t *testing.T) {
	for name, request := range scenarios {
		w := newWorld(1)
		for range 100 {
			request(w)
			w.noise(w.requests[len(w.requests)-1], 20)
		}
		want := associate(w, false)
		w.requests = append(w.requests, w.requests[:30]...)
		w.Shuffle(len(w.requests), func(i, j int) { w.requests[i], w.requests[j] = w.requests[j], w.requests[i] })
		if diff := gocmp.Diff(want, associate(w, false), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The presence of a context of a tracepoint is tested on the requests with the tracepoint enabled, even if all of these
// were slower.
func TestExplainTracepoint(t *testing.T) {
	for name, on := range map[string]func(o *observation.Observation, tracepoint trace.Symbol) bool{
		"known":   func(o *observation.Observation, _ trace.Symbol) bool { return o.Plan == 2 },
		"unknown": nil,
	} {
		right, wrong := 0, 0
		for seed := range uint64(20) {
			for _, matters := range []bool{true, false} {
				w := newWorld(seed)
				w.request(5, 10, 0)
				for range 256 {
					plan, waits := w.IntN(2), w.IntN(3) == 0
					factor := []float64{1, 1.5}[plan] * either(waits && matters, 4.0, 1.0)
					o := w.request(5*w.heavy(0.2), 10*w.heavy(0.2)*factor, either(plan == 1 && waits, 0.001, 0))
					o.Plan = int64(1 + plan)
					if c := o.Context(w.cache); c != nil {
						c.Tracepoint = 7 // so it is in no baseline edge, nor in the skeleton
						o.Edges = slices.DeleteFunc(o.Edges,
							func(e observation.EdgeTime) bool { return e.Context == w.cache })
						o.Skeleton = w.requests[0].Skeleton
						w.text(o, w.cache, "wait", "futex")
					}
				}
				a := Associate(w.problem(), w.requests, w.table, Options{On: on})
				got := w.format(a.Explanations)
				switch {
				case strings.HasPrefix(got, "duration: wait=futex at read"):
					if matters {
						right++
					} else {
						wrong++
					}
				case got != "":
					t.Log(got)
					wrong++
				}
			}
		}
		if name == "known" && right < 19 || name == "unknown" && right > 0 || wrong > 1 {
			t.Errorf("%s: found in %d of 20 samples, wrong in %d of 40", name, right, wrong)
		}
	}
}

// The unit of times does not matter.
func TestExplainScale(t *testing.T) {
	for name, request := range scenarios {
		if name == "elapsed" || name == "queue" {
			continue // attributes with units of time
		}
		w := newWorld(2)
		for range 128 {
			request(w)
		}
		want := associate(w, false)
		for _, o := range w.requests {
			o.Duration *= 1024
			for i := range o.Edges {
				o.Edges[i].Nanos *= 1024
			}
		}
		diff := gocmp.Diff(want, associate(w, false), cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0))
		if diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Variables that explain nothing are unrelated if there are enough requests. Variables that explain something are not.
func TestExplainUnrelated(t *testing.T) {
	for _, n := range []int{20, 256} {
		w := newWorld(1)
		for range n {
			scenarios["two"](w)
			w.noise(w.requests[len(w.requests)-1], 10)
		}
		noise := 0
		for _, u := range associate(w, false).Unrelated {
			if !strings.HasPrefix(u.Name, "noise") {
				t.Errorf("%d requests: %s is unrelated", n, u.Name)
			}
			noise++
		}
		if want := map[int]int{20: 0, 256: 7}[n]; noise < want || n == 20 && noise > 0 {
			t.Errorf("%d requests: %d of 10 noise variables are unrelated, want %d", n, noise, want)
		}
	}
}

func TestExplainWithoutVariation(t *testing.T) {
	w := newWorld(1)
	if got := w.explain(); got != nil {
		t.Errorf("explanations %v without requests, want none", got)
	}
	for range 100 {
		o := w.request(5, 10, 0)
		w.number(o, w.get, "n", w.NormFloat64())
		w.number(o, w.get, "nan", math.NaN())
		w.number(o, w.get, "inf", math.Inf(1-2*w.IntN(2)))
	}
	if a := associate(w, false); a.Explanations != nil || a.Unrelated != nil {
		t.Errorf("association %v of equal durations, want an empty one", a)
	}
	for i, o := range w.requests {
		o.Duration += time.Duration(i)
	}
	if got := w.explain(); got != nil {
		t.Errorf("explanations %v by useless variables, want none", got)
	}
}

func TestLoad(t *testing.T) {
	l := NewLoad(maps.All(map[trace.Nanos]time.Duration{0: 10, 5: 10, 7: 1}))
	for at, want := range map[trace.Nanos]int{-1: 0, 0: 1, 5: 2, 7: 3, 8: 2, 10: 1, 15: 0} {
		if got := l.At(at); got != want {
			t.Errorf("At(%d) = %d, want %d", at, got, want)
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	w := newWorld(1)
	for range 256 {
		tenant := fmt.Sprint("t", w.IntN(8))
		size := w.heavy(1)
		db := 10*w.heavy(0.3) + 10*size
		if tenant == "t3" {
			db *= 4
		}
		o := w.request(5*w.heavy(0.3), db, 0)
		w.text(o, w.get, "tenant", tenant)
		w.number(o, w.get, "size", size)
		w.noise(o, 198)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.explain()
	}
}

// BenchmarkExplainContexts explains requests with a thousand optional contexts.
func BenchmarkExplainContexts(b *testing.B) {
	w := newWorld(1)
	for range 256 {
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.3), 0)
		for i := range 1000 {
			if w.IntN(2) == 0 {
				c := w.get.Child(trace.Op(i + 1))
				o.Contexts = append(o.Contexts, observation.ContextCount{
					Context: c,
					Parent:  w.get,
					Op:      trace.Op(i + 1),
					Count:   int32(1 + w.IntN(3)),
				})
			}
		}
		slices.SortFunc(o.Contexts,
			func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	}
	b.ReportAllocs()
	for b.Loop() {
		w.explain()
	}
}

// An attribute that is constant in its context, like the name of the service, is not reported instead of the presence
// of the context.
func TestExplainConstantAttribute(t *testing.T) {
	w := newWorld(1)
	for range 128 {
		reached := w.IntN(3) == 0
		o := w.request(5*w.heavy(0.2), 10*w.heavy(0.2)+either(reached, 40.0, 0), either(reached, 0.001, 0))
		if reached {
			w.text(o, w.cache, "service.name", "cache")
		}
	}
	a := Associate(w.problem(), w.requests, w.table, Options{})
	if len(a.Explanations) == 0 || a.Explanations[0].Variable != "present" {
		t.Errorf("explanations %s, want the presence of the context", w.format(a.Explanations))
	}
}

// BenchmarkExplainFew explains few requests with very many variables.
func BenchmarkExplainFew(b *testing.B) {
	w := newWorld(1)
	for range 60 {
		slow := w.IntN(4) == 0
		o := w.request(5*w.heavy(0.3), 10*w.heavy(0.3)*either(slow, 6.0, 1.0), 0)
		w.text(o, w.get, "tenant", fmt.Sprint(slow))
		w.noise(o, 1500)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(w.explain()) == 0 {
			b.Fatal("no explanations")
		}
	}
}

// If requests are judged at equal size, neither the size nor equivalent variables are reported.
func TestEqualSize(t *testing.T) {
	w := newWorld(3)
	const perByte = 100
	for range 400 {
		size := math.Round(500_000 * w.Float64())
		slow := 0.0
		tenant := "free"
		if w.IntN(5) == 0 {
			slow, tenant = 15, "gold"
		}
		o := w.request(5, 2+slow+perByte*size/1e6+w.Float64(), 0)
		w.number(o, w.get, "bytes", size)
		w.number(o, w.db, "rows", size/8)
		w.text(o, w.get, "tenant", tenant)
	}
	p := w.problem()
	reported := func() (variables []string, effect float64) {
		for _, x := range Associate(p, w.requests, w.table, Options{}).Explanations {
			variables = append(variables, x.Variable)
			if x.Variable == "tenant" && x.Target == 0 {
				effect = x.Effect
			}
		}
		return variables, effect
	}
	if all, effect := reported(); !slices.Contains(all, "bytes") || !(effect < 0.3) {
		t.Errorf("reported %v, effect of the tenant %v, want bytes, less than 0.3", all, effect)
	}
	p.Size = &group.SizeModel{
		SizeModel:    stats.SizeModel{Base: 8e6, PerByte: perByte, Segment: 1448},
		MeanExpected: 8e6 + 250_000*perByte,
	}
	p.SizeKey = w.table.Symbol("bytes")
	if all, effect := reported(); len(all) == 0 ||
		slices.ContainsFunc(all, func(v string) bool { return v != "tenant" }) || !(effect > 0.9) {
		t.Errorf("reported %v at equal size, effect of the tenant %v, want the tenant only, more than 0.9", all, effect)
	}
	p.Kind = detect.KindSlow // refers to durations
	if all, _ := reported(); !slices.Contains(all, "bytes") {
		t.Errorf("reported %v for a slow mean, want bytes", all)
	}
}
