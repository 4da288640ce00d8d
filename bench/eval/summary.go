package eval

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

// Report is the result of a [Simulation], by strategy.
type Report struct {
	Strategies map[string]*Score `json:"strategies"`
}

// Score sums up runs. Rates are over the locatable runs with a fault.
type Score struct {
	Cases     int `json:"cases"`     // runs with a fault
	Locatable int `json:"locatable"` // of these
	// Significant is the number of cases with an effect of three standard errors over the whole run, however small.
	// Top1Significant is the fraction of them with a correct suspect first.
	Significant     int  `json:"significant"`
	Top1Significant Rate `json:"top1_significant"`
	// Top1 and Top3 are the fractions of locatable cases with a correct suspect first, and among the first three, with
	// Wilson's 95 % interval.
	Top1     Rate `json:"top1"`
	Top1Low  Rate `json:"top1_low"`
	Top1High Rate `json:"top1_high"`
	Top3     Rate `json:"top3"`
	Top3Low  Rate `json:"top3_low"`
	Top3High Rate `json:"top3_high"`
	// Raised is the fraction of locatable cases with a problem.
	Raised Rate `json:"raised"`
	// Medians over the locatable cases: the fractions of executed tracepoints that were enabled ever and at the peak,
	// and extra spans per 1 000 requests. Medians over the cases with a problem: epochs until it was raised, and from
	// then to the answer.
	EnabledMedian  Rate `json:"enabled_median"`
	PeakMedian     Rate `json:"peak_median"`
	SpanHitsMedian Rate `json:"span_hits_median"`
	SpanHitsMean   Rate `json:"span_hits_mean"`
	DetectedMedian Rate `json:"detected_median"`
	EpochsMedian   Rate `json:"epochs_median"`
	// FalseAlarms is the number per 1 000 group-hours without a fault, over all runs.
	FalseAlarms    Rate    `json:"false_alarms_per_1000_group_hours"`
	FalseAlarmsRaw int     `json:"false_alarms"`
	GroupHours     float64 `json:"group_hours"`
	// FalseIncidents is the number per week without a fault, in one installation, over all runs.
	FalseIncidents    Rate              `json:"false_incidents_per_week"`
	FalseIncidentsRaw int               `json:"false_incidents"`
	Watched           float64           `json:"watched_hours"`
	Decide            time.Duration     `json:"decide_max_ns"` // longest time to end an epoch
	ByFault           map[string]*Score `json:"by_fault,omitempty"`
}

// Summarize sums up runs by strategy, and within a strategy by fault.
func Summarize(runs []Run) Report {
	report := Report{Strategies: make(map[string]*Score)}
	for _, strategy := range distinct(runs, func(r *Run) string { return r.Strategy }) {
		of := filter(runs, func(r *Run) bool { return r.Strategy == strategy })
		score := summarize(of)
		score.ByFault = make(map[string]*Score)
		for _, fault := range distinct(of, func(r *Run) string { return string(r.Fault) }) {
			score.ByFault[fault] = summarize(filter(of, func(r *Run) bool { return string(r.Fault) == fault }))
		}
		report.Strategies[strategy] = score
	}
	return report
}

func summarize(runs []Run) *Score {
	s := &Score{}
	var enabled, peak, hits, detected, epochs []float64
	var top1, top3, raised, significant int
	for i := range runs {
		r := &runs[i]
		s.FalseAlarmsRaw += r.FalseAlarms
		s.GroupHours += r.GroupHours
		s.FalseIncidentsRaw += r.FalseIncidents
		s.Watched += r.Watched
		s.Decide = max(s.Decide, r.Decide)
		if r.Fault == sim.None {
			continue
		}
		s.Cases++
		s.Significant += Count(r.Significant)
		significant += Count(r.Significant && r.Rank == 1)
		if !r.Locatable {
			continue
		}
		s.Locatable++
		top1 += Count(r.Rank == 1)
		top3 += Count(r.Rank >= 1 && r.Rank <= 3)
		raised += Count(r.Raised)
		enabled = append(enabled, ratio(r.Enabled, r.Executed))
		peak = append(peak, ratio(r.Peak, r.Executed))
		hits = append(hits, 1000*ratio(r.SpanHits, r.Requests))
		if r.Raised {
			detected = append(detected, float64(r.Detected))
			epochs = append(epochs, float64(r.Epochs))
		}
	}
	s.Top1, s.Top1Low, s.Top1High = wilson(top1, s.Locatable)
	s.Top3, s.Top3Low, s.Top3High = wilson(top3, s.Locatable)
	s.Top1Significant, s.Raised = rate(significant, s.Significant), rate(raised, s.Locatable)
	s.EnabledMedian, s.PeakMedian = Median(enabled), Median(peak)
	s.SpanHitsMedian, s.SpanHitsMean = Median(hits), Rate(stat.Mean(hits, nil))
	s.DetectedMedian, s.EpochsMedian = Median(detected), Median(epochs)
	if s.FalseAlarms = None(); s.GroupHours > 0 {
		s.FalseAlarms = Rate(1000 * float64(s.FalseAlarmsRaw) / s.GroupHours)
	}
	if s.FalseIncidents = None(); s.Watched > 0 {
		s.FalseIncidents = Rate(hoursOfWeek * float64(s.FalseIncidentsRaw) / s.Watched)
	}
	return s
}

const hoursOfWeek = 7 * 24

// Count returns 1 for true and 0 for false.
func Count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// rate returns k/n, or [None] if n is 0.
func rate(k, n int) Rate {
	if n == 0 {
		return None()
	}
	return Rate(ratio(k, n))
}

// Median returns the median of xs, or [None] if xs is empty. If the number of values is even, it is the mean of the
// middle two.
func Median(xs []float64) Rate {
	if len(xs) == 0 {
		return None()
	}
	sorted := slices.Sorted(slices.Values(xs))
	return Rate((sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2)
}

// wilson returns k/n with Wilson's 95 % score interval, or [None] for all three if n is 0.
func wilson(k, n int) (value, low, high Rate) {
	if n == 0 {
		return None(), None(), None()
	}
	const z = 1.96
	p, m := float64(k)/float64(n), float64(n)
	center := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return Rate(p), Rate(max(0, center-half)), Rate(min(1, center+half))
}

// distinct returns the values of key, each once, in the order of their first run.
func distinct(runs []Run, key func(*Run) string) []string {
	var keys []string
	for i := range runs {
		if k := key(&runs[i]); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func filter(runs []Run, keep func(*Run) bool) []Run {
	var kept []Run
	for i := range runs {
		if keep(&runs[i]) {
			kept = append(kept, runs[i])
		}
	}
	return kept
}
