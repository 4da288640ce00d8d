package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// JVMOptions configures [MeasureJVM].
type JVMOptions struct {
	Options               // Fault is ignored; the seed grows by one with each run
	Faults  []shop.Fault  // of the runs, in turn
	Runs    int           // each with new JVMs
	Window  time.Duration // in which arms are compared
	Search  time.Duration // maximum time that Sibyl looks at request types that vary, before Well
	Well    time.Duration // measured before the fault
	Back    time.Duration // measured after the fault was removed
}

// Arm is a configuration of the service in Java. All arms run at the same time and receive the same requests.
type Arm string

// The arms.
const (
	WithoutAgents      Arm = "none"
	OpenTelemetry      Arm = "opentelemetry"       // OpenTelemetry's Java agent
	OpenTelemetryAgain Arm = "opentelemetry-again" // the same again: any difference is chance
	SteeredAgent       Arm = "adaptive"            // plus Sibyl's agent, steered by a service with default settings
	AllTracepoints     Arm = "all"                 // plus Sibyl's agent, with all tracepoints enabled
)

// Arms returns all arms.
func Arms() []Arm {
	return []Arm{WithoutAgents, OpenTelemetry, OpenTelemetryAgain, SteeredAgent, AllTracepoints}
}

// Phase is a part of a run.
type Phase string

// The phases.
const (
	Start   Phase = "start"   // the JVMs compile, and Sibyl has no history
	Search  Phase = "search"  // no fault, but Sibyl looks for the reasons of latencies that vary
	Healthy Phase = "healthy" // no fault, and no tracepoint has been enabled for some time
	Faulty  Phase = "fault"   // from the injection of the fault until its removal
	After   Phase = "after"   // once the fault was removed and its tracepoints are disabled
)

// JVMReport compares the arms.
type JVMReport struct {
	Customers int         `json:"customers"`
	Window    float64     `json:"window_seconds"`
	Runs      []*JVMRun   `json:"runs"`
	Phases    []*JVMPhase `json:"phases"`
	windows   map[Phase]map[Arm][]armWindow
}

// JVMRun is the result of a run, measured in the adaptive arm.
type JVMRun struct {
	Result
	Applied map[Phase]int `json:"applied_peak"`  // largest number of tracepoints enabled by its agent, by phase
	AtEnd   int           `json:"applied_after"` // tracepoints that were enabled at the end
}

// JVMPhase compares the arms in a phase, over all runs.
type JVMPhase struct {
	Phase   Phase      `json:"phase"`
	Windows int        `json:"windows"`
	Arms    []*JVMArms `json:"arms"`
}

// JVMArms is the performance of the service in an arm. Ratios compare it with [OpenTelemetry] in the same window.
type JVMArms struct {
	Arm      Arm      `json:"arm"`
	Requests int      `json:"requests"`
	Spans    float64  `json:"spans_per_request"`
	CPU      Compared `json:"cpu_ms_per_request"` // of the JVM
	P50      Compared `json:"p50_ms"`
	P95      Compared `json:"p95_ms"`
}

// armWindow is the performance of an arm in a window.
type armWindow struct {
	requests             int
	cpu, p50, p95, spans float64
}

// MeasureJVM runs the service in Java in all arms. Each run injects a fault into all arms at once, lets the adaptive
// arm locate it, and removes it again.
func MeasureJVM(ctx context.Context, o *JVMOptions) (*JVMReport, error) {
	report := &JVMReport{Customers: customers, Window: o.Window.Seconds(), windows: make(map[Phase]map[Arm][]armWindow)}
	for i := range o.Runs {
		run := *o
		run.Fault, run.Seed = o.Faults[i%len(o.Faults)], o.Seed+uint64(i/len(o.Faults))
		fmt.Fprintf(o.Out, "Run %d of %d: %s, seed %d\n", i+1, o.Runs, run.Fault, run.Seed)
		r, err := report.run(ctx, &run)
		if err != nil {
			return nil, err
		}
		report.Runs = append(report.Runs, r)
		fmt.Fprint(o.Out, r)
	}
	for _, p := range []Phase{Start, Search, Healthy, Faulty, After} {
		report.Phases = append(report.Phases, report.compare(p))
	}
	return report, nil
}

// compare returns the comparison of the arms in a phase.
func (r *JVMReport) compare(p Phase) *JVMPhase {
	reference := r.windows[p][OpenTelemetry]
	phase := &JVMPhase{Phase: p, Windows: len(reference)}
	if len(reference) == 0 {
		return phase
	}
	for _, name := range Arms() {
		a := &JVMArms{Arm: name}
		windows := r.windows[p][name]
		spans := make([]float64, len(windows))
		for i, w := range windows {
			a.Requests += w.requests
			spans[i] = w.spans
		}
		a.Spans = float64(eval.Median(spans))
		a.CPU = compared(windows, reference, func(w armWindow) float64 { return w.cpu })
		a.P50 = compared(windows, reference, func(w armWindow) float64 { return w.p50 })
		a.P95 = compared(windows, reference, func(w armWindow) float64 { return w.p95 })
		phase.Arms = append(phase.Arms, a)
	}
	return phase
}

// jvmRun is a run in progress. Its services are the arms, in the order of Arms.
type jvmRun struct {
	*demo
	options    *JVMOptions
	report     *JVMReport
	everything *everything
	addresses  []string
	phase      Phase
	result     *JVMRun

	mu        sync.Mutex  // guards latencies
	latencies [][]float64 // of successful requests since the start of the window, in ms, by arm
}

// run runs the arms once and adds their windows to the report.
func (r *JVMReport) run(ctx context.Context, o *JVMOptions) (result *JVMRun, err error) {
	d, err := newDemo(&o.Options)
	if err != nil {
		return nil, err
	}
	x := &jvmRun{
		demo:      d,
		options:   o,
		report:    r,
		phase:     Start,
		latencies: make([][]float64, len(Arms())),
		result:    &JVMRun{Applied: make(map[Phase]int)},
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.start(ctx); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { x.serveCustomers(serving) })
	running.Go(func() { x.follow(serving) })
	if err := x.phases(ctx); err != nil {
		return nil, err
	}
	return x.result, nil
}

// start starts the server and the arms.
func (x *jvmRun) start(ctx context.Context) (err error) {
	environment := plainEnvironment(x.Environment)
	if x.server, err = startServer(ctx, x.Options, x.dir, filepath.Join(x.dir, "data"), environment); err != nil {
		return err
	}
	x.watchExit(x.server.child)
	x.watcher = newWatcher(x.server, x.Out)
	otlp := x.server.otlp
	if x.Past > 0 {
		if x.past, err = startPast(ctx, otlp); err != nil {
			return err
		}
		otlp = x.past.address()
	}
	if x.everything, err = startEverything(ctx); err != nil {
		return err
	}
	jar, err := x.writeAgent(environment)
	if err != nil {
		return err
	}
	for _, arm := range Arms() {
		c, err := start("catalog-"+string(arm), x.Program, x.dir, environment, ShopCommand)
		if err != nil {
			return err
		}
		x.shop = append(x.shop, c)
		x.watchExit(c)
	}
	if err := x.startArms(jar, otlp); err != nil {
		return err
	}
	x.watcher.report("The service runs in %d configurations.", len(x.shop))
	return nil
}

// startArms starts the service in all arms at once and warms them up at once, so that the comparison is fair.
func (x *jvmRun) startArms(jar, otlp string) error {
	x.addresses = make([]string, len(x.shop))
	var all errgroup.Group
	for i, c := range x.shop {
		all.Go(func() error {
			var reply shop.Reply
			if err := c.send(shop.Command{Setup: x.setup(i, jar, otlp)}, &reply); err != nil {
				return err
			}
			x.addresses[i] = reply.Address
			return c.send(shop.Command{Peers: map[string][]string{shop.JavaService: {reply.Address}}}, new(shop.Reply))
		})
	}
	return all.Wait()
}

// setup returns the configuration of the service in an arm.
func (x *jvmRun) setup(i int, jar, otlp string) *shop.Setup {
	arm := Arms()[i]
	setup := &shop.Setup{
		Service: shop.JavaService, Instance: i, Dir: x.dir, Truth: x.truth,
		Java: &shop.Java{JVM: x.Java.JVM, Service: x.Java.Service},
	}
	if arm != WithoutAgents {
		setup.Java.OpenTelemetry = x.Java.OpenTelemetry
	}
	if arm == SteeredAgent {
		setup.Java.Agent, setup.Control, setup.OTLP = jar, x.server.url(), otlp
	}
	if arm == AllTracepoints {
		setup.Java.Agent, setup.Control = jar, x.everything.url()
		setup.Java.Arguments = []string{"rate:1000000"} // drops would make it look cheaper
	}
	return setup
}

// close stops all processes and removes their files.
func (x *jvmRun) close() error {
	err := x.demo.close()
	if x.everything != nil {
		err = errors.Join(err, x.everything.close())
	}
	return err
}

// armThinkTime is the mean think time between the requests to two arms. A JVM compiles its methods after some thousand
// calls, and these must not use up the healthy time.
const armThinkTime = meanThinkTime / 4

// serveCustomers runs the customers until ctx ends. Each sends every request to all arms, in random order.
func (x *jvmRun) serveCustomers(ctx context.Context) {
	paths := shop.JavaPaths()
	runCustomers(ctx, x.Seed, func(_ uint64, client *http.Client, r *rand.Rand) {
		q, path := shop.NewRequest(r), paths[r.IntN(len(paths))]
		for _, arm := range r.Perm(len(x.addresses)) {
			began := time.Now()
			if x.load.post(ctx, client, "http://"+x.addresses[arm]+path, &q) {
				x.mu.Lock()
				x.latencies[arm] = append(x.latencies[arm], float64(time.Since(began))/1e6)
				x.mu.Unlock()
			}
			think(ctx, r, armThinkTime)
		}
	})
}

// phases runs the phases of a run and sets the result.
func (x *jvmRun) phases(ctx context.Context) error {
	if err := x.windowsUntil(ctx, background(ctx, x.makePast), time.Hour); err != nil {
		return err
	}
	settled := background(ctx, x.settle)
	x.phase = Search
	if err := x.searchEnd(ctx); err != nil {
		return err
	}
	x.phase = Healthy
	if err := x.windowsUntil(ctx, settled, time.Hour); err != nil {
		return err
	}
	if err := x.windowsUntil(ctx, nil, x.options.Well); err != nil {
		return err
	}
	before, err := x.steered(ctx)
	if err != nil {
		return err
	}
	if err := x.inject(); err != nil {
		return err
	}
	x.phase = Faulty
	x.watcher.report("The fault was injected into all of them.")
	if err := x.windowsUntil(ctx, background(ctx, x.waitLocated), x.Timeout); err != nil {
		return err
	}
	after, err := x.steered(ctx)
	if err != nil {
		return err
	}
	x.result.Result = *x.demo.result(before, after)
	return x.recover(ctx)
}

// recover removes the fault, waits until its tracepoints are disabled, and measures the remaining cost.
func (x *jvmRun) recover(ctx context.Context) error {
	for _, c := range x.shop {
		var reply shop.Reply
		if err := c.send(shop.Command{Inject: &shop.Injection{Fault: shop.None}}, &reply); err != nil {
			return err
		}
	}
	x.watcher.report("The fault was removed.")
	x.waitOff(ctx)
	x.phase = After
	if err := x.windowsUntil(ctx, nil, x.options.Back); err != nil {
		return err
	}
	x.watcher.mu.Lock()
	x.result.RemainingEnabled = x.watcher.held
	x.watcher.mu.Unlock()
	x.result.AtEnd = x.applied(ctx)
	return nil
}

// waitLocated waits until Sibyl has located the fault.
func (x *jvmRun) waitLocated(ctx context.Context) error {
	select {
	case <-x.watcher.located:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// background runs call in a goroutine. The channel yields its result. call must return when ctx ends.
func background(ctx context.Context, call func(context.Context) error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- call(ctx) }()
	return c
}

// windowsUntil measures windows until limit has passed, or until done yields an error or nil, which it returns.
func (x *jvmRun) windowsUntil(ctx context.Context, done <-chan error, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case err := <-done:
			return err
		default:
		}
		if err := x.window(ctx); err != nil {
			return err
		}
	}
	return nil
}

// quietTime is the time without a tracepoint that shows that a search has ended. The agent restores classes after half
// of it, and the JVM compiles them again.
const quietTime = 2 * time.Minute

// searchEnd measures windows until no tracepoint has been enabled for quietTime, but at most for options.Search.
func (x *jvmRun) searchEnd(ctx context.Context) error {
	end, quiet := time.Now().Add(x.options.Search), time.Now()
	for time.Since(quiet) < quietTime && time.Now().Before(end) {
		if err := x.window(ctx); err != nil {
			return err
		}
		if x.applied(ctx) > 0 {
			quiet = time.Now()
		}
	}
	return nil
}

// window measures all arms for the length of a window. It drops the figures if an arm has answered no request.
func (x *jvmRun) window(ctx context.Context) error {
	enabledBefore := x.applied(ctx)
	before, err := x.reports()
	if err != nil {
		return err
	}
	x.takeLatencies()
	if err := x.sleep(ctx, x.options.Window); err != nil {
		return err
	}
	latencies := x.takeLatencies()
	after, err := x.reports()
	if err != nil {
		return err
	}
	phase, enabled := x.phase, max(enabledBefore, x.applied(ctx))
	if phase == Healthy && enabled > 0 {
		phase = Search
	}
	x.result.Applied[phase] = max(x.result.Applied[phase], enabled)
	if slices.ContainsFunc(latencies, func(l []float64) bool { return len(l) == 0 }) {
		return nil // the machine is too busy; no ratio exists
	}
	byArm := x.report.windows[phase]
	if byArm == nil {
		byArm = make(map[Arm][]armWindow)
		x.report.windows[phase] = byArm
	}
	for i, arm := range Arms() {
		slices.Sort(latencies[i])
		n := float64(len(latencies[i]))
		byArm[arm] = append(byArm[arm], armWindow{
			requests: len(latencies[i]),
			cpu:      1e3 * (after[i].CPU - before[i].CPU).Seconds() / n,
			spans:    float64(after[i].Spans-before[i].Spans) / n,
			p50:      stat.Quantile(0.5, stat.Empirical, latencies[i], nil),
			p95:      stat.Quantile(0.95, stat.Empirical, latencies[i], nil),
		})
	}
	return nil
}

// takeLatencies returns the latencies of the arms and clears them.
func (x *jvmRun) takeLatencies() [][]float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	taken := x.latencies
	x.latencies = make([][]float64, len(taken))
	return taken
}

// reports returns the counters of all arms.
func (x *jvmRun) reports() ([]*shop.Report, error) {
	var all []*shop.Report
	for _, c := range x.shop {
		r, err := c.report()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// steered returns the counters of the adaptive arm.
func (x *jvmRun) steered(ctx context.Context) (*shop.Report, error) {
	r, err := x.shop[slices.Index(Arms(), SteeredAgent)].report()
	if err != nil {
		return nil, err
	}
	r.Tracepoints = x.offered(ctx, shop.JavaService)
	return r, nil
}

// applied returns the number of tracepoints that the agent of the adaptive arm has enabled.
func (x *jvmRun) applied(ctx context.Context) int {
	n := 0
	for _, a := range x.server.agents(ctx, shop.JavaService) {
		n += a.Applied
	}
	return n
}

// Located returns the number of runs with a correct answer.
func (r *JVMReport) Located() int {
	n := 0
	for _, run := range r.Runs {
		n += eval.Count(run.Correct)
	}
	return n
}

// Table writes a table of the runs, and one with a row for each phase and arm.
func (r *JVMReport) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fault\tseed\tanswer\tcorrect\tseconds\tenabled before\twith the fault\tafter\tat the end\t")
	for _, x := range r.Runs {
		answer := units.Unknown
		if x.Edge != nil {
			answer = x.Edge.String()
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%t\t%.0f\t%d\t%d\t%d\t%d\t\n", x.Fault, x.Seed, answer, x.Correct, x.Seconds,
			x.Applied[Search], x.Applied[Faulty], x.Applied[After], x.AtEnd)
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t,
		"phase\tagents\twindows\trequests\tspans/request\tCPU, ms/request\tratio\tP50, ms\tratio\tP95, ms\tratio\t")
	for _, p := range r.Phases {
		for _, a := range p.Arms {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.1f\t%.2f\t%s\t%.1f\t%s\t%.1f\t%s\t\n",
				p.Phase, a.Arm, p.Windows, a.Requests, a.Spans,
				a.CPU.Median, a.CPU.ratio(), a.P50.Median, a.P50.ratio(), a.P95.Median, a.P95.ratio())
		}
	}
	return t.Flush()
}
