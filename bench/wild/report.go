package wild

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Report is the result of a run.
type Report struct {
	Seeds          []uint64       `json:"seeds"`
	Faults         []Fault        `json:"faults"`
	Raised         float64        `json:"raised"` // share of the faults, 0–1
	First          float64        `json:"first"`  // share of the faults whose first suspect is right, 0–1
	FalseIncidents int            `json:"false_incidents"`
	HealthyHours   float64        `json:"healthy_hours"`
	ByKind         map[string]Sum `json:"by_kind"`
	AfterHarmless  Sum            `json:"after_harmless"`
	BeforeHarmless Sum            `json:"before_harmless"`
	// Coverage is the share of the spans in tidy traces: all parents are present in the trace, and each span starts
	// before its parent ends. It is a property of the traffic. An engine that judges only such traces judges this
	// share.
	Coverage     float64       `json:"coverage"`
	False        []False       `json:"false"`
	Applications []Application `json:"applications"`
}

// Fault is a fault with its answer.
type Fault struct {
	Seed    uint64   `json:"seed"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	After   string   `json:"after"` // the latest harmless event before it; "none"
	Raised  bool     `json:"raised"`
	Seconds *float64 `json:"seconds_to_raise"`  // nil if not raised
	Rank    *int     `json:"rank_service"`      // among the suspects of the first incident; nil if no suspect is right
	Share   float64  `json:"share_of_requests"` // that the fault touched
	Touch   int      `json:"touched_requests"`
	Ratio   float64  `json:"ratio"` // mean duration of these, relative to the usual one; 0 if they are not slower
	Place   string   `json:"place"`
	From    int64    `json:"from_unix_nano"`
	To      int64    `json:"to_unix_nano"`
	Others  int      `json:"other_incidents"` // further ones in its window
	Instead []string `json:"instead"`         // suspects of incidents that do not name the place first
}

// Sum counts faults.
type Sum struct {
	Raised  int      `json:"raised"`
	First   int      `json:"first"`
	Of      int      `json:"of"`
	Seconds *float64 `json:"seconds_median"` // to raise; nil if no fault was raised
}

// False is an incident that opened outside of all faults.
type False struct {
	Seed     uint64   `json:"seed"`
	Opened   int64    `json:"opened_unix_nano"`
	After    string   `json:"after"`   // the latest event or end of a fault
	Seconds  *float64 `json:"seconds"` // since then
	Minutes  *float64 `json:"minutes"` // that it was open; nil if it was open until the end
	Suspects string   `json:"suspects"`
}

// Application describes the application of a seed.
type Application struct {
	Seed      uint64   `json:"seed"`
	Services  int      `json:"services"`
	Rate      float64  `json:"requests_per_second"` // recorded
	Sampling  float64  `json:"sampling"`
	Addresses string   `json:"addresses"`
	Untidy    []string `json:"untidy"`
	Spans     int      `json:"spans"`
	Traces    int      `json:"traces"`
	Skipped   []string `json:"skipped"` // kinds of faults without a place in it
}

// describe returns the description of the application.
func (g *generator) describe(traces int) Application {
	a := g.app
	d := Application{
		Seed:      g.seed,
		Services:  len(a.services),
		Rate:      a.requests(),
		Sampling:  a.style.sampling,
		Addresses: [...]string{"names", "pod IPs", "virtual IPs"}[a.style.addresses],
		Spans:     g.spans,
		Traces:    traces,
		Untidy:    a.untidy(),
		Skipped:   slices.Clone(g.skipped),
	}
	return d
}

// untidy lists the untidy features of an application.
func (a *app) untidy() (list []string) {
	add := func(name string, present bool) {
		if present {
			list = append(list, name)
		}
	}
	add("phones", len(a.devices) > 0)
	add("a hop without spans", slices.ContainsFunc(a.services, func(s *service) bool { return s.unseen }))
	add("work after the response", slices.ContainsFunc(a.services, func(s *service) bool {
		return slices.ContainsFunc(s.ops, func(o *operation) bool { return len(o.later) > 0 })
	}))
	add("streams", slices.ContainsFunc(a.types, func(t *requestType) bool { return t.nature == stream }))
	add("polls", slices.ContainsFunc(a.types, func(t *requestType) bool { return t.nature == poll }))
	for _, q := range a.queues {
		name := [...]string{"queues in traces", "queues by links", "queues with receive spans"}[q.delivery]
		add(name, !slices.Contains(list, name))
	}
	return list
}

func newReport(answers []answer) *Report {
	r := &Report{Faults: []Fault{}, False: []False{}, ByKind: make(map[string]Sum)}
	var received, judgeable uint64
	for i := range answers {
		a := &answers[i]
		r.Seeds = append(r.Seeds, a.seed)
		r.Faults = append(r.Faults, a.faults...)
		r.False = append(r.False, a.false...)
		r.Applications = append(r.Applications, a.app)
		r.HealthyHours += a.healthy.Hours()
		received += a.received
		judgeable += a.judgeable
	}
	r.FalseIncidents = len(r.False)
	r.Coverage = float64(judgeable) / float64(max(1, received))
	all := r.sum(func(*Fault) bool { return true })
	n := float64(max(1, all.Of))
	r.Raised, r.First = float64(all.Raised)/n, float64(all.First)/n
	r.AfterHarmless = r.sum(func(f *Fault) bool { return f.After != "none" })
	r.BeforeHarmless = r.sum(func(f *Fault) bool { return f.After == "none" })
	for i := range r.Faults {
		kind := r.Faults[i].Kind
		r.ByKind[kind] = r.sum(func(f *Fault) bool { return f.Kind == kind })
	}
	return r
}

func (r *Report) sum(of func(*Fault) bool) (s Sum) {
	var seconds []float64
	for i := range r.Faults {
		f := &r.Faults[i]
		if !of(f) {
			continue
		}
		s.Of++
		if f.Raised {
			s.Raised++
			seconds = append(seconds, *f.Seconds)
		}
		if f.first() {
			s.First++
		}
	}
	if len(seconds) > 0 {
		s.Seconds = new(stats.Median(seconds))
	}
	return s
}

func (f *Fault) first() bool { return f.Rank != nil && *f.Rank == 1 }

// Table writes the report for people.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "seed\tservices\trequests/s\tsampling\taddresses\tspans\tuntidy\tno place for")
	for i := range r.Applications {
		a := &r.Applications[i]
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.0f %%\t%s\t%d\t%s\t%s\n",
			a.Seed, a.Services, a.Rate, 100*a.Sampling, a.Addresses,
			a.Spans, strings.Join(a.Untidy, ", "), strings.Join(a.Skipped, ", "))
	}
	fmt.Fprintln(w, "\nfault\traised\tfirst\tof\tseconds, median")
	row := func(name string, s Sum) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", name, s.Raised, s.First, s.Of, number(s.Seconds, "%.0f"))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		row(kind, r.ByKind[kind])
	}
	row("all", r.sum(func(*Fault) bool { return true }))
	row("  before any harmless event", r.BeforeHarmless)
	row("  after harmless events", r.AfterHarmless)
	fmt.Fprintf(w, "\nraised %.0f %% (goal 95 %%), first %.0f %% (goal 90 %%)\n", 100*r.Raised, 100*r.First)
	fmt.Fprintf(w, "%d false incidents in %.1f healthy hours (goal: 1 in 24)\n", r.FalseIncidents, r.HealthyHours)
	others := 0
	for i := range r.Faults {
		others += r.Faults[i].Others
	}
	fmt.Fprintf(w, "%d further incidents in the windows of faults\n", others)
	fmt.Fprintf(w, "%.1f %% of the spans are in complete trees\n", 100*r.Coverage)
	r.misses(w)
	r.falseIncidents(w)
	return w.Flush()
}

// misses writes the faults that were not raised with the right suspect first.
func (r *Report) misses(w io.Writer) {
	fmt.Fprintln(w, "\nseed\tmiss\tafter\tplace\ttouched\tratio\trank\traised instead")
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.first() {
			continue
		}
		rank := "not raised"
		if f.Raised {
			rank = number(f.Rank, "%d")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%.0f %%\t%.1f\t%s\t%s\n",
			f.Seed, f.Name, f.After, f.Place, 100*f.Share, f.Ratio,
			rank, strings.Join(f.Instead, "; "))
	}
}

func (r *Report) falseIncidents(w io.Writer) {
	if len(r.False) == 0 {
		return
	}
	fmt.Fprintln(w, "\nseed\tfalse incident after\tseconds\tminutes open\tsuspects")
	for i := range r.False {
		f := &r.False[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", f.Seed, f.After, number(f.Seconds, "%.0f"), number(f.Minutes, "%.0f"),
			f.Suspects)
	}
}

// number formats a number, or returns a dash for nil.
func number[T any](x *T, format string) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x)
}
