package week

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
)

// Report is the result of a run. Shares are 0–1.
type Report struct {
	Weeks          int     `json:"weeks"`
	RequestTypes   int     `json:"request_types"`
	Requests       int     `json:"requests"`
	FalseIncidents float64 `json:"false_incidents_per_week"` // see [backtest.Score]
	// HarmlessDeploysRaised have an incident of their service within a quarter of an hour.
	HarmlessDeploysRaised int   `json:"harmless_deploys_raised"`
	Deploys               int   `json:"deploys"`
	Steps                 Steps `json:"steps"`
	// LeakRaisedAtRatio is the own time, relative to the usual one, when the first leak was raised; nil if it was not.
	LeakRaisedAtRatio *float64 `json:"leak_raised_at_ratio"`
	// IntermittentIncidents are those within the first intermittent fault.
	IntermittentIncidents int  `json:"intermittent_incidents"`
	OutageRaised          bool `json:"outage_raised"` // all outages
	// ErrorsRaised is the share of the operations that failed.
	ErrorsRaised float64 `json:"errors_raised"`
	PodsRaised   float64 `json:"pods_raised"` // share of the slow instances
	// OpenWithoutFault is the share of the time outside of faults with an open incident.
	OpenWithoutFault  float64  `json:"time_open_without_fault"`
	NotificationDelay *int     `json:"notification_delay_epochs_under_5000_chronic"` // nil without a notification
	Chronic           *Chronic `json:"chronic"`
	Faults            []Fault  `json:"faults"`
	False             []False  `json:"false"`
}

// Steps sums up the steps. A step is raised if, within three minutes, an incident opens that has its service among the
// first three suspects.
type Steps struct {
	Raised           int      `json:"raised"`
	Of               int      `json:"of"`
	SecondsMedian    *float64 `json:"seconds_median"` // of the steps raised at any time; nil if there are none
	WhileOpenRaised  int      `json:"while_others_open_raised"`
	OfWhileOpen      int      `json:"of_while_others_open"`
	AtDeploysRaised  int      `json:"at_deploys_raised"`
	OfAtDeploys      int      `json:"of_at_deploys"`
	RaisedEventually int      `json:"raised_eventually"` // at any time until a minute after the step
}

// Fault is a fault with its answer.
type Fault struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	From    int64    `json:"from_unix_nano"`
	Service string   `json:"service"`
	Factor  float64  `json:"factor"`     // on own times; 0 if it is not slow
	Calls   float64  `json:"calls"`      // of the operation a second at that time
	Lost    float64  `json:"lost_share"` // latency added to all requests, relative to their usual time
	Seconds *float64 `json:"seconds_to_raise"`
	Rank    *int     `json:"rank_service"`
}

// False is a false incident.
type False struct {
	Opened  int64    `json:"opened_unix_nano"`
	Hour    string   `json:"hour"` // day and time
	Minutes *float64 `json:"minutes"`
	Service string   `json:"service"`
	Score   float64  `json:"score"`
}

const (
	raisedWithin = 3 * time.Minute
	ofDeploy     = 15 * time.Minute
	afterFault   = 5 * time.Minute
)

// judge compares the incidents with the schedule.
func judge(o Options, a *app, s *schedule, r *backtest.Result) *Report {
	report := &Report{
		Weeks:          o.Weeks,
		RequestTypes:   o.Types,
		Requests:       r.Traces,
		Deploys:        len(s.deploys),
		OutageRaised:   true,
		Faults:         []Fault{},
		False:          []False{},
		FalseIncidents: float64(len(r.Score.False)) / float64(o.Weeks),
	}
	for i := range s.faults {
		report.Faults = append(report.Faults, a.answer(&s.faults[i], &r.Score.Cases[i]))
	}
	report.countSteps(s)
	report.ErrorsRaised, report.PodsRaised = report.raised(errorsFault), report.raised(podFault)
	report.OutageRaised = report.raised(outageFault) == 1
	for i := range s.faults {
		f := &s.faults[i]
		if f.kind == leakFault && report.LeakRaisedAtRatio == nil {
			report.LeakRaisedAtRatio = a.leakRaised(f, r.Incidents)
		}
		if f.kind == intermittentFault && report.IntermittentIncidents == 0 {
			report.IntermittentIncidents = opened(r.Incidents, f.window)
		}
	}
	for i := range r.Incidents {
		if x := &r.Incidents[i]; slices.Contains(r.Score.False, x.ID) {
			report.False = append(report.False, a.falseIncident(x))
		}
	}
	for _, d := range s.deploys {
		if a.raisedBy(&d, s.faults, r.Incidents) {
			report.HarmlessDeploysRaised++
		}
	}
	report.OpenWithoutFault = openWithoutFault(s.faults, r)
	return report
}

// located reports whether the fault was raised with its service among the first three suspects.
func (f *Fault) located() bool { return f.Seconds != nil && f.Rank != nil && *f.Rank <= 3 }

// answer returns a fault with its answer.
func (a *app) answer(f *fault, c *backtest.Case) Fault {
	out := Fault{
		Name:    c.Name,
		Kind:    f.kind,
		From:    int64(f.window.From),
		Service: a.table.Text(a.services[f.service].name),
		Factor:  f.factor,
		Seconds: c.SecondsToRaise,
		Rank:    c.RankService,
	}
	if f.kind == outageFault {
		return out
	}
	op, all := &a.ops[f.op], 0.0
	for i := range a.types {
		o := &a.ops[a.types[i].op]
		all += o.rate * o.duration
	}
	out.Calls = op.rate * load(f.window.From)
	if f.factor > 0 {
		out.Lost = op.rate * op.mean * (f.factor - 1) / all
	}
	return out
}

func (r *Report) countSteps(s *schedule) {
	var seconds []float64
	count := func(located bool, raised, of *int) {
		*of++
		if located {
			*raised++
		}
	}
	for i := range s.faults {
		f, answer := &s.faults[i], &r.Faults[i]
		if f.kind != stepFault {
			continue
		}
		if answer.located() {
			seconds = append(seconds, *answer.Seconds)
			r.Steps.RaisedEventually++
		}
		inTime := answer.located() && *answer.Seconds <= raisedWithin.Seconds()
		count(inTime, &r.Steps.Raised, &r.Steps.Of)
		if f.paired {
			count(inTime, &r.Steps.WhileOpenRaised, &r.Steps.OfWhileOpen)
		}
		if slices.ContainsFunc(s.deploys, func(d deploy) bool {
			return d.service == f.service && d.at < f.window.From && f.window.From.Sub(d.at) < ofDeploy
		}) {
			count(inTime, &r.Steps.AtDeploysRaised, &r.Steps.OfAtDeploys)
		}
	}
	if len(seconds) > 0 {
		median := stats.Median(seconds)
		r.Steps.SecondsMedian = &median
	}
}

// raised returns the share of the faults of a kind that are located.
func (r *Report) raised(kind string) float64 {
	located, all := 0, 0
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Kind == kind {
			all++
			if f.located() {
				located++
			}
		}
	}
	return float64(located) / float64(max(1, all))
}

// leakRaised returns the growth of a leak when the first incident opened that has its service among the first three
// suspects, or nil if no incident did. A day has incidents of other services, too.
func (a *app) leakRaised(f *fault, incidents []engine.Incident) *float64 {
	var ratio *float64
	for i := range incidents {
		x := &incidents[i]
		if !f.window.Contains(x.Opened()) ||
			!slices.ContainsFunc(x.Suspects[:min(3, len(x.Suspects))], func(s compare.Suspect) bool {
				return s.Service == a.services[f.service].name
			}) {
			continue
		}
		if at := leakedAt(x.Opened().Sub(f.window.From)); ratio == nil || at < *ratio {
			ratio = &at
		}
	}
	return ratio
}

// opened returns the number of incidents that opened in a window.
func opened(incidents []engine.Incident, in history.Interval) (n int) {
	for i := range incidents {
		if in.Contains(incidents[i].Opened()) {
			n++
		}
	}
	return n
}

func (a *app) falseIncident(x *engine.Incident) False {
	f := False{
		Opened: int64(x.Opened()), Hour: time.Unix(0, int64(x.Opened())).UTC().Format("Mon 2 Jan 15:04"),
		Service: a.table.Text(x.Suspects[0].Service), Score: x.Suspects[0].Score,
	}
	if !x.IsOpen() {
		minutes := x.Closed().Sub(x.Opened()).Minutes()
		f.Minutes = &minutes
	}
	return f
}

// raisedBy reports whether a deploy raised an incident of its service, that is, whether one opened soon after it and
// outside of all faults of the service.
func (a *app) raisedBy(d *deploy, faults []fault, incidents []engine.Incident) bool {
	return slices.ContainsFunc(incidents, func(x engine.Incident) bool {
		return between(d.at, ofDeploy).Contains(x.Opened()) && x.Suspects[0].Service == a.services[d.service].name &&
			!slices.ContainsFunc(faults, func(f fault) bool {
				return f.service == d.service && f.window.From <= x.Opened() &&
					x.Opened() <= f.window.To.Add(backtest.Grace)
			})
	})
}

// openWithoutFault returns the share of minutes with an open incident. It ignores faults and the minutes after them, in
// which their incidents close.
func openWithoutFault(faults []fault, r *backtest.Result) float64 {
	open, all := 0, 0
	for at := r.Learned; at < r.To; at = at.Add(time.Minute) {
		if slices.ContainsFunc(faults, func(f fault) bool {
			return f.window.From <= at && at < f.window.To.Add(afterFault)
		}) {
			continue
		}
		all++
		if slices.ContainsFunc(r.Incidents,
			func(x engine.Incident) bool { return x.Opened() <= at && (x.IsOpen() || at < x.Closed()) }) {
			open++
		}
	}
	return float64(open) / float64(max(1, all))
}

// Table writes the report for people.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d weeks, %d request types, %d requests\n\n", r.Weeks, r.RequestTypes, r.Requests)
	fmt.Fprintf(w, "figure\tvalue\tgoal\n")
	fmt.Fprintf(w, "false incidents a week\t%.1f\tat most 2\n", r.FalseIncidents)
	fmt.Fprintf(w, "harmless deploys raised\t%d of %d\tnone\n", r.HarmlessDeploysRaised, r.Deploys)
	fmt.Fprintf(w, "steps raised within 3 minutes\t%d of %d\t95 %%\n", r.Steps.Raised, r.Steps.Of)
	fmt.Fprintf(w, "  while another fault was open\t%d of %d\t95 %%\n", r.Steps.WhileOpenRaised, r.Steps.OfWhileOpen)
	fmt.Fprintf(w, "  after a deploy of the service\t%d of %d\t95 %%\n", r.Steps.AtDeploysRaised, r.Steps.OfAtDeploys)
	fmt.Fprintf(w, "steps raised at any time\t%d of %d\t\n", r.Steps.RaisedEventually, r.Steps.Of)
	fmt.Fprintf(w, "seconds to raise, median\t%s\t\n", number(r.Steps.SecondsMedian, "%.0f"))
	fmt.Fprintf(w, "leak raised at\t%s\tbelow × 1.5\n", number(r.LeakRaisedAtRatio, "× %.2f"))
	fmt.Fprintf(w, "incidents of the intermittent fault\t%d\t1\n", r.IntermittentIncidents)
	fmt.Fprintf(w, "outage raised\t%t\ttrue\n", r.OutageRaised)
	fmt.Fprintf(w, "failing operations raised\t%.0f %%\t\n", 100*r.ErrorsRaised)
	fmt.Fprintf(w, "slow instances raised\t%.0f %%\t\n", 100*r.PodsRaised)
	fmt.Fprintf(w, "time open without a fault\t%.1f %%\tat most 1 %%\n", 100*r.OpenWithoutFault)
	if c := r.Chronic; c != nil {
		fmt.Fprintf(w, "epochs until a notification, with %d chronic problems\t%s\tat most 2\n",
			c.Problems, number(c.Epochs, "%d"))
	}
	fmt.Fprintf(w, "\nfault\tservice\tcalls/s\tfactor\tlost\tseconds\trank\n")
	for i := range r.Faults {
		f := &r.Faults[i]
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.1f\t%.2f %%\t%s\t%s\n",
			f.Name, f.Service, f.Calls, f.Factor, 100*f.Lost, number(f.Seconds, "%.0f"), number(f.Rank, "%d"))
	}
	if len(r.False) > 0 {
		fmt.Fprintf(w, "\nfalse incident\tservice\tscore\tminutes\n")
	}
	for i := range r.False {
		f := &r.False[i]
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%s\n", f.Hour, f.Service, f.Score, number(f.Minutes, "%.0f"))
	}
	return w.Flush()
}

// number formats a number, or returns a dash for nil.
func number[T any](x *T, format string) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x)
}
