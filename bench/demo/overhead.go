package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// OverheadOptions configures [MeasureOverhead].
type OverheadOptions struct {
	Options               // of the demo whose search yields the adaptive plan
	Rounds  int           // each runs the shop once with each selection
	Time    time.Duration // of a run
}

// Selection is a set of enabled tracepoints.
type Selection string

// The selections.
const (
	Nothing    Selection = "none"     // only the baseline
	Adaptive   Selection = "adaptive" // the largest plan of a search
	Everything Selection = "all"
)

// Overhead is the cost of tracepoints for the shop.
type Overhead struct {
	Fault     shop.Fault         `json:"fault"` // of the search
	Seed      uint64             `json:"seed"`
	Rounds    int                `json:"rounds"`
	Seconds   float64            `json:"seconds"`   // of a run
	Customers int                `json:"customers"` // concurrent, without think time
	Loads     []*SelectionResult `json:"loads"`
	runs      [][]measure        // by index of Loads and round
}

// SelectionResult is the performance of the shop with a selection.
type SelectionResult struct {
	On          Selection `json:"on"`
	Tracepoints int       `json:"tracepoints"`             // enabled, in all arms together
	ExtraSpans  float64   `json:"extra_spans_per_request"` // beyond the baseline
	Throughput  Compared  `json:"requests_per_second"`
	P99         Compared  `json:"p99_ms"`
	CPU         Compared  `json:"cpu_ms_per_request"` // of all processes of the shop together
}

// Compared is a figure over all rounds, compared with [Nothing].
type Compared struct {
	Median float64 `json:"median"`
	Ratio  float64 `json:"ratio"` // median of the ratios to the same round with Nothing
	// Low and High are the 95 % interval of the ratio by the sign test, which assumes no distribution. They are the
	// range of the ratios if there are fewer than six rounds.
	Low  float64 `json:"ratio_low"`
	High float64 `json:"ratio_high"`
}

// measure is the result of a run.
type measure struct{ throughput, p99, cpu, extra float64 }

// warmUp is the duration of the load before a run is measured.
const warmUp = time.Second

// MeasureOverhead runs a search and keeps its largest plan. Then another shop, without a fault, serves customers
// without think time. Each round runs it once with each selection, in random order, with the same requests each time.
func MeasureOverhead(ctx context.Context, o *OverheadOptions) (result *Overhead, err error) {
	search := o.Options
	result = &Overhead{Rounds: o.Rounds, Seconds: o.Time.Seconds(), Customers: customers, Seed: o.Seed}
	adaptive := &contract.Plan{}
	search.Done = func(r *Result) error {
		result.Fault = r.Fault
		if r.largest != nil {
			adaptive = r.largest
		}
		return nil
	}
	if err := Run(ctx, &search); err != nil && !errors.Is(err, ErrNotFound) { // its plan is useful without an answer
		return nil, err
	}
	d, err := newDemo(&o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.noAgents = true
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	plan, n := agentPlan(adaptive)
	result.Loads = []*SelectionResult{{On: Nothing}, {On: Adaptive, Tracepoints: n}, {On: Everything}}
	plans := []*shop.FixedPlan{{}, {Plan: plan}, {All: true}}
	result.runs = make([][]measure, len(plans))
	r := rand.New(rand.NewPCG(o.Seed, 0))
	for round := range o.Rounds {
		for _, i := range r.Perm(len(plans)) {
			m, err := d.measure(ctx, plans[i], o.Seed+uint64(round), o.Time)
			if err != nil {
				return nil, err
			}
			result.runs[i] = append(result.runs[i], m)
			d.watcher.report("round %d of %d, %s: %.0f requests/s", round+1, o.Rounds, result.Loads[i].On, m.throughput)
		}
	}
	report, err := d.report(ctx)
	if err != nil {
		return nil, err
	}
	result.Loads[2].Tracepoints = report.Tracepoints
	result.compare()
	return result, nil
}

// agentPlan converts a plan of the API to a plan of agents. It also returns the number of enabled tracepoints.
func agentPlan(from *contract.Plan) (p *protocol.Plan, enabled int) {
	p = &protocol.Plan{Protocol: protocol.Version, Version: 1, LeaseSeconds: protocol.MaxLease}
	all := make(map[string]bool)
	for i := range from.Arms {
		a := protocol.Arm{Name: from.Arms[i].Name}
		if s := from.Arms[i].Share; s != nil {
			a.Share = *s
		}
		for _, t := range from.Arms[i].Tracepoints {
			all[t.Name] = true
			a.Tracepoints = append(a.Tracepoints, protocol.Enabled{ID: t.Name, Rate: 1})
		}
		slices.SortFunc(a.Tracepoints, func(x, y protocol.Enabled) int { return strings.Compare(x.ID, y.ID) })
		p.Arms = append(p.Arms, a)
	}
	return p, len(all)
}

// apply applies p in all processes of the shop.
func (d *demo) apply(p *shop.FixedPlan) error {
	for _, c := range d.shop {
		var reply shop.Reply
		if err := c.send(shop.Command{Apply: p}, &reply); err != nil {
			return err
		}
		if reply.Error != "" {
			return fmt.Errorf("%s: %s", c.name, reply.Error)
		}
	}
	return nil
}

// measure applies p and runs the shop at full load for the given duration. It returns an error if any request failed.
func (d *demo) measure(ctx context.Context, p *shop.FixedPlan, seed uint64, duration time.Duration) (measure, error) {
	if err := d.apply(p); err != nil {
		return measure{}, err
	}
	gateway := d.peers[shop.Gateway][0]
	d.load.saturate(ctx, gateway, seed, warmUp)
	if err := d.apply(p); err != nil { // also enables tracepoints that the first requests discovered
		return measure{}, err
	}
	before, err := d.report(ctx)
	if err != nil {
		return measure{}, err
	}
	latencies := d.load.saturate(ctx, gateway, seed, duration)
	after, err := d.report(ctx)
	switch {
	case err != nil:
		return measure{}, err
	case ctx.Err() != nil:
		return measure{}, context.Cause(ctx)
	case d.load.failed.Load() > 0 || len(latencies) == 0:
		return measure{}, fmt.Errorf("%d requests failed, %d succeeded", d.load.failed.Load(), len(latencies))
	}
	slices.Sort(latencies)
	n := float64(len(latencies))
	return measure{
		throughput: n / duration.Seconds(), p99: stat.Quantile(0.99, stat.Empirical, latencies, nil) / 1e6,
		cpu: 1e3 * (after.CPU - before.CPU).Seconds() / n, extra: float64(after.Extra-before.Extra) / n,
	}, nil
}

// compare sets the figures of o.Loads from the runs of all rounds.
func (o *Overhead) compare() {
	for i, l := range o.Loads {
		extra := make([]float64, len(o.runs[i]))
		for k, m := range o.runs[i] {
			extra[k] = m.extra
		}
		l.ExtraSpans = float64(eval.Median(extra))
		l.Throughput = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.throughput })
		l.P99 = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.p99 })
		l.CPU = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.cpu })
	}
}

// compared compares a figure of runs with the same figure of a reference, round by round.
func compared[M any](runs, reference []M, figure func(M) float64) Compared {
	values, ratios := make([]float64, len(runs)), make([]float64, len(runs))
	for i := range runs {
		values[i] = figure(runs[i])
		ratios[i] = values[i] / figure(reference[i])
	}
	slices.Sort(ratios)
	trim := signTestTrim(len(ratios))
	return Compared{
		Median: float64(eval.Median(values)),
		Ratio:  float64(eval.Median(ratios)),
		Low:    ratios[trim],
		High:   ratios[len(ratios)-1-trim],
	}
}

// signTestTrim returns the number of order statistics to remove at each end of n samples so that the rest spans the 95
// % interval of the median by the sign test. It returns 0 if n is too small.
func signTestTrim(n int) int {
	probability, cumulative := 1.0, 0.0 // that k of n fair coins show heads; that at most k do
	for range n {
		probability /= 2
	}
	for k := range n {
		if cumulative += probability; cumulative > 0.025 {
			return max(0, k-1)
		}
		probability *= float64(n-k) / float64(k+1)
	}
	return 0
}

// Table writes a table with a row for each selection.
func (o *Overhead) Table(w io.Writer) error {
	fmt.Fprintf(w,
		"%d customers without think time, %s of %.0f s; adaptive is the largest plan of a search for %s (seed %d)\n\n",
		o.Customers, units.Plural(o.Rounds, "round"), o.Seconds, o.Fault, o.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "enabled\ttracepoints\textra spans/request\trequests/s\tratio to none\t"+
		"P99, ms\tratio to none\tCPU, ms/request\tratio to none\t")
	for _, l := range o.Loads {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%s\t%.1f\t%s\t%.2f\t%s\t\n", l.On, l.Tracepoints, l.ExtraSpans,
			l.Throughput.Median, l.Throughput.ratio(), l.P99.Median, l.P99.ratio(), l.CPU.Median, l.CPU.ratio())
	}
	return t.Flush()
}

func (c *Compared) ratio() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", c.Ratio, c.Low, c.High) }
