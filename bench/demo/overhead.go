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

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// OverheadOptions say how it is measured what tracepoints cost the shop.
type OverheadOptions struct {
	Options               // of the demo whose search says what is on adaptively
	Rounds  int           // in each of which the shop runs once with each selection
	Time    time.Duration // of a run
}

// Selection says what is on in the shop.
type Selection string

// The selections.
const (
	Nothing    Selection = "none"     // but the baseline
	Adaptive   Selection = "adaptive" // what a search had on when it had most on
	Everything Selection = "all"
)

// Overhead is what tracepoints cost the shop.
type Overhead struct {
	Fault     shop.Fault  `json:"fault"` // that was searched
	Seed      uint64      `json:"seed"`
	Rounds    int         `json:"rounds"`
	Seconds   float64     `json:"seconds"`   // of a run
	Customers int         `json:"customers"` // at the same time, who do not think
	Loads     []*Loaded   `json:"loads"`
	runs      [][]measure // by index of Loads and round
}

// Loaded is how the shop does with a selection.
type Loaded struct {
	On          Selection `json:"on"`
	Tracepoints int       `json:"tracepoints"`             // that are on, in all arms together
	ExtraSpans  float64   `json:"extra_spans_per_request"` // beyond the baseline's
	Throughput  Compared  `json:"requests_per_second"`
	P99         Compared  `json:"p99_ms"`
	CPU         Compared  `json:"cpu_ms_per_request"` // of all processes of the shop together
}

// Compared is a figure over all rounds.
type Compared struct {
	Median float64 `json:"median"`
	Ratio  float64 `json:"ratio"` // to that of the same round with nothing on; the median
	// Low and High are the interval of the ratio: that of the signs of differences, which holds in 95 of 100 cases whatever the
	// distribution. With less than six rounds it is the range of the ratios.
	Low  float64 `json:"ratio_low"`
	High float64 `json:"ratio_high"`
}

// measure is what came out of one run.
type measure struct{ throughput, p99, cpu, extra float64 }

// warmUp is how long a selection is in force until it counts.
const warmUp = time.Second

// MeasureOverhead has a search run to see what it switches on. Then another shop, without a fault, serves as many requests as it can:
// in each round once with each selection, in an order by chance, the same requests each time.
func MeasureOverhead(ctx context.Context, o *OverheadOptions) (result *Overhead, err error) {
	searched := o.Options
	result = &Overhead{Rounds: o.Rounds, Seconds: o.Time.Seconds(), Customers: customers, Seed: o.Seed}
	adaptive := &contract.Plan{}
	searched.Done = func(r *Result) error {
		result.Fault = r.Fault
		if r.largest != nil {
			adaptive = r.largest
		}
		return nil
	}
	if err := Run(ctx, &searched); err != nil && !errors.Is(err, ErrNotFound) { // what it had on counts
		return nil, err
	}
	d, err := newDemo(&o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.unplanned = true
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	plan, on := planOf(adaptive)
	result.Loads = []*Loaded{{On: Nothing}, {On: Adaptive, Tracepoints: on}, {On: Everything}}
	plans := []*protocol.Plan{nil, plan, everything()}
	result.runs = make([][]measure, len(plans))
	r := rand.New(rand.NewPCG(o.Seed, 0))
	for round := range o.Rounds {
		for _, i := range r.Perm(len(plans)) {
			m, err := d.measure(ctx, plans[i], o.Seed+uint64(round), o.Time)
			if err != nil {
				return nil, err
			}
			result.runs[i] = append(result.runs[i], m)
			d.watcher.tell("round %d of %d, %s: %.0f requests/s", round+1, o.Rounds, result.Loads[i].On, m.throughput)
		}
	}
	executed, err := d.report()
	if err != nil {
		return nil, err
	}
	result.Loads[2].Tracepoints = executed.Tracepoints
	result.compare()
	return result, nil
}

// planOf returns a plan of the server as agents get it, and how many tracepoints are on.
func planOf(from *contract.Plan) (p *protocol.Plan, on int) {
	p = &protocol.Plan{Protocol: protocol.Version, Version: 1, LeaseSeconds: protocol.MaxLease}
	all := make(map[string]bool)
	for i := range from.Arms {
		a := protocol.Arm{Name: from.Arms[i].Name, Everything: from.Arms[i].Everything}
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

// everything returns a plan with which all requests have everything on.
func everything() *protocol.Plan {
	return &protocol.Plan{
		Protocol: protocol.Version, Version: 2, LeaseSeconds: protocol.MaxLease,
		Arms: []protocol.Arm{{Name: protocol.ExploreArm, Share: 1, Everything: true}},
	}
}

// measure has the shop serve what it can while a plan is in force.
func (d *demo) measure(ctx context.Context, p *protocol.Plan, seed uint64, lasts time.Duration) (measure, error) {
	for _, c := range d.shop {
		var answer shop.Answer
		if err := c.tell(shop.Order{Apply: &shop.Applied{Plan: p}}, &answer); err != nil {
			return measure{}, err
		}
		if answer.Error != "" {
			return measure{}, fmt.Errorf("%s: %s", c.name, answer.Error)
		}
	}
	gateway := d.peers[shop.Gateway][0]
	d.load.rush(ctx, gateway, seed, warmUp)
	before, err := d.report()
	if err != nil {
		return measure{}, err
	}
	took := d.load.rush(ctx, gateway, seed, lasts)
	after, err := d.report()
	switch {
	case err != nil:
		return measure{}, err
	case ctx.Err() != nil:
		return measure{}, context.Cause(ctx)
	case d.load.failed.Load() > 0 || len(took) == 0:
		return measure{}, fmt.Errorf("%d requests failed, %d were answered", d.load.failed.Load(), len(took))
	}
	slices.Sort(took)
	n := float64(len(took))
	return measure{
		throughput: n / lasts.Seconds(), p99: 1e3 * took[len(took)*99/100].Seconds(), cpu: 1e3 * (after.CPU - before.CPU).Seconds() / n,
		extra: float64(after.Extra-before.Extra) / n,
	}, nil
}

// compare fills in the figures of all rounds.
func (o *Overhead) compare() {
	for i, l := range o.Loads {
		extra := make([]float64, len(o.runs[i]))
		for k, m := range o.runs[i] {
			extra[k] = m.extra
		}
		l.ExtraSpans = lowerMedian(extra)
		l.Throughput = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.throughput })
		l.P99 = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.p99 })
		l.CPU = compared(o.runs[i], o.runs[0], func(m measure) float64 { return m.cpu })
	}
}

// compared compares a figure of runs with that of others, round by round.
func compared(runs, with []measure, figure func(measure) float64) Compared {
	values, ratios := make([]float64, len(runs)), make([]float64, len(runs))
	for i := range runs {
		values[i] = figure(runs[i])
		ratios[i] = values[i] / figure(with[i])
	}
	slices.Sort(ratios)
	outside := signsOutside(len(ratios))
	return Compared{Median: lowerMedian(values), Ratio: lowerMedian(ratios), Low: ratios[outside], High: ratios[len(ratios)-1-outside]}
}

// signsOutside returns how many of n ascending numbers lie, at each end, outside of an interval that holds the median of their
// distribution with a probability of at least 0.95; 0 if there is none that does.
func signsOutside(n int) int {
	probability, below := 1.0, 0.0 // of so many heads of n coins, and of fewer or as many
	for range n {
		probability /= 2
	}
	for k := range n {
		if below += probability; below > 0.025 {
			return max(0, k-1)
		}
		probability *= float64(n-k) / float64(k+1)
	}
	return 0
}

// Table writes it, a line for each selection.
func (o *Overhead) Table(w io.Writer) error {
	fmt.Fprintf(w, "%d customers who do not think, %d rounds of %.0f s; adaptive is what a search for %s (seed %d) had on at most\n\n", o.Customers, o.Rounds, o.Seconds, o.Fault, o.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "on\ttracepoints\textra spans a request\trequests/s\tto none\tP99, ms\tto none\tCPU, ms a request\tto none\t")
	for _, l := range o.Loads {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%s\t%.1f\t%s\t%.2f\t%s\t\n", l.On, l.Tracepoints, l.ExtraSpans,
			l.Throughput.Median, l.Throughput.ratio(), l.P99.Median, l.P99.ratio(), l.CPU.Median, l.CPU.ratio())
	}
	return t.Flush()
}

func (c *Compared) ratio() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", c.Ratio, c.Low, c.High) }
