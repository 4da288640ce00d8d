package offline_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// app sends requests of two types that use the same database, which is faster in some epochs than in others.
type app struct {
	table *trace.Table
	rng   *rand.Rand
	sent  int
}

// epoch returns the requests of the epoch that starts at `from`. If fault is set, orders on host b are slow.
func (a *app) epoch(from trace.Nanos, fault bool) (traces []*trace.Trace) {
	database := math.Exp(0.1 * a.rng.NormFloat64())
	for range 100 {
		at := from.Add(time.Duration(a.rng.Int64N(int64(epochLength))))
		host := string(rune('a' + a.rng.IntN(3)))
		db := 20 * database * math.Exp(0.2*a.rng.NormFloat64())
		if fault && host == "b" {
			db += 60
		}
		traces = append(traces, a.request("orders", host, at, db),
			a.request("stock", "s", at, 30*database*math.Exp(0.2*a.rng.NormFloat64())))
	}
	return traces
}

const epochLength = 10 * time.Second

// request returns a request that spends 5 ms in service, db ms in the database and, in parallel, 6 ms in a cache.
func (a *app) request(service, host string, start trace.Nanos, db float64) *trace.Trace {
	a.sent++
	op := func(name string, kind trace.Kind) trace.Op {
		return a.table.Op(a.table.Symbol(service), a.table.Symbol(name), kind)
	}
	ms := func(x float64) trace.Nanos { return start + trace.Nanos(x*1e6) }
	t := &trace.Trace{
		ID: trace.ID{0: 1, 13: byte(a.sent >> 16), 14: byte(a.sent >> 8), 15: byte(a.sent)},
		Spans: []trace.Span{
			{
				ID:    1,
				Op:    op("GET /", trace.Server),
				Kind:  trace.Server,
				Start: start,
				End:   ms(db + 5),
			},
			{
				ID:     2,
				Parent: 1,
				Op:     op("select", trace.Client),
				Kind:   trace.Client,
				Start:  ms(2),
				End:    ms(2 + db),
			},
			{
				ID:     3,
				Parent: 1,
				Op:     op("read", trace.Client),
				Kind:   trace.Client,
				Start:  ms(2),
				End:    ms(8),
			},
		},
	}
	for i := range t.Spans {
		t.Spans[i].Service, t.Spans[i].Host = a.table.Symbol(service), a.table.Symbol(host)
		t.Attrs = append(t.Attrs,
			trace.Attr{Key: a.table.Symbol("host.name"), Text: a.table.Symbol(host), Span: int32(i)})
	}
	return t
}

// analyzeTraces writes traces to a file and analyses it.
func analyzeTraces(t *testing.T, traces []*trace.Trace, table *trace.Table) *offline.Report {
	t.Helper()
	data, err := tracegen.JSON(traces, table)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "traces.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	options := offline.DefaultOptions()
	options.Input.Keys = ingest.AllKeys()
	return analyze(t, []string{path}, options)
}

// The core's findings equal the findings of an analysis of the same requests from a file.
func TestLiveAgreesWithFile(t *testing.T) {
	a := &app{table: &trace.Table{}, rng: rand.New(rand.NewPCG(1, 2))}
	o := engine.DefaultOptions()
	o.Learning = time.Minute
	core := engine.NewCore(a.table, o)
	now := trace.Nanos(1_700_000_000_000_000_000)
	var all, sampled []*trace.Trace
	var p *detect.Problem
	var live string // findings
	for epoch := 0; live == "" || len(core.View().Common) == 0; epoch++ {
		if epoch > 200 {
			t.Fatalf("after %d epochs: findings %q, common edges %v", epoch, live, core.View().Common)
		}
		traces := a.epoch(now, epoch > 50)
		for _, x := range traces {
			core.Ingest(x)
		}
		all = append(all, traces...)
		if p != nil && live == "" {
			sampled = append(sampled, traces...)
		}
		now = now.Add(epochLength)
		core.Epoch(now)
		if live == "" {
			var found *explain.Findings
			if p, found = ordersProblem(core); found != nil {
				live = written(found, a.table)
			}
		}
	}

	file := analyzeTraces(t, sampled, a.table)
	i := slices.IndexFunc(file.Problems,
		func(p offline.Problem) bool { return file.Table.ServiceName(p.Entry) == "orders" })
	if i < 0 {
		t.Fatal("the file has no such problem")
	}
	if want := written(&file.Problems[i].Findings, file.Table); live != want {
		t.Errorf("live:\n%s\nfrom the file:\n%s", live, want)
	}
	for _, part := range []string{
		"host.name=b explains 98 % of the duration", "host.name=b takes 60 ms longer",
		"orders select",
	} {
		if !strings.Contains(live, part) {
			t.Errorf("the findings lack %q:\n%s", part, live)
		}
	}
	got, want := common(core.View().Common, a.table), common(analyzeTraces(t, all, a.table).Common, a.table)
	if got != want || got == "" {
		t.Errorf("live, %q rise and fall together; in the file, %q", got, want)
	}
}

// ordersProblem returns the problem of orders, if it is sampled, and the core's findings about it.
func ordersProblem(core *engine.Core) (*detect.Problem, *explain.Findings) {
	for i := range core.View().Problems.Open() {
		p := &core.View().Problems.Open()[i]
		if core.View().Table.ServiceName(p.Entry) == "orders" && core.View().Problems.Sampled(p.Group) != nil {
			return p, core.View().Problems.Findings(p.ID)
		}
	}
	return nil, nil
}

// written returns findings as text. It leaves out values that depend on the history of a problem, or on the level at
// which it is reported: p-values and the exact levels of recoveries.
func written(f *explain.Findings, table *trace.Table) string {
	var b strings.Builder
	place := func(e trace.Edge) string {
		if e == 0 {
			return "the duration"
		}
		context := table.EdgeInfo(e).Context
		path := table.Path(cmp.Or(context, trace.Context(e)))
		return table.ServiceName(path[len(path)-1]) + " " + table.OpName(path[len(path)-1])
	}
	fmt.Fprintf(&b, "%d requests, joint correlation %v\n", f.Requests, f.Joint)
	for _, x := range f.Explanations {
		fmt.Fprintf(&b, "%s=%s explains %.0f %% of %s\n", x.Variable, x.Value, 100*x.Effect, place(x.Target))
	}
	for _, x := range f.Contrasts {
		fmt.Fprintf(&b, "%s=%s takes %.0f ms longer (%d and %d requests)",
			x.Key, x.Value, x.Duration.Value/1e6, x.Requests, x.Rest)
		for _, e := range x.Edges {
			fmt.Fprintf(&b, ", %.0f ms in %s", e.Value/1e6, place(e.Edge))
		}
		fmt.Fprintln(&b)
	}
	for _, x := range f.Recoveries {
		fmt.Fprintf(&b, "%s: %.1f of the mean, %.1f of the p99 of %d requests\n",
			place(x.Edge), x.MeanPart, x.P99Part, x.Requests)
	}
	return b.String()
}

// common returns the services of edges that rise and fall together.
func common(all []explain.CommonEdges, table *trace.Table) string {
	var clusters []string
	for _, c := range all {
		var services []string
		for _, e := range c.Edges {
			services = append(services, table.ServiceName(table.Context(e.Context).Op))
		}
		slices.Sort(services)
		clusters = append(clusters, strings.Join(services, "+"))
	}
	return strings.Join(clusters, ", ")
}
