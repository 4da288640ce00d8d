package incident

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// keptPeaks is the number of peaks, the highest ones, that are kept per kind.
	keptPeaks = 6
	// oddWindows is the fraction of windows judged healthy that may not have been. That many of the highest peaks, but
	// at most mostOdd, are left out when estimating the tail. Thresholds still exceed them, because incidents would
	// otherwise reopen minutes after they close.
	oddWindows = 1. / 50
	mostOdd    = 2
	// leastMargin is the minimum ratio of a threshold to the highest peak.
	leastMargin = 1.25
)

// peak is the highest level in a series of consecutive healthy windows.
type peak struct {
	level    float64
	requests uint64      // number of requests in the window with this level
	last     trace.Nanos // end of the last window of the series
}

// record holds the highest peaks of a service by kind, in descending order of level. It holds several because they
// describe the tail of the levels, so that a single odd window hardly matters.
type record [numKinds][]peak

// learn adds l, the levels of a healthy window that ended at end.
func (r *record) learn(end trace.Nanos, requests uint64, l *levels) {
	for k, level := range l {
		if level > 0 {
			r[k] = withPeak(r[k], peak{level, requests, end})
		}
	}
}

// withPeak returns the peaks with p added. Overlapping windows share one peak.
func withPeak(peaks []peak, p peak) []peak {
	i := slices.IndexFunc(peaks, func(q peak) bool { return p.last.Sub(q.last).Abs() < Window })
	switch {
	case i >= 0:
		q := &peaks[i]
		q.last = max(q.last, p.last)
		if q.level < p.level {
			q.level, q.requests = p.level, p.requests
		}
	case len(peaks) < keptPeaks:
		peaks = append(peaks, p)
	case peaks[keptPeaks-1].level < p.level:
		peaks[keptPeaks-1] = p
	}
	sorting.SliceStable(peaks, func(a, b peak) int { return cmp.Compare(b.level, a.level) })
	return peaks
}

// forget deletes the peaks that ended before the given time, and reports whether any are left.
func (r *record) forget(before trace.Nanos) (left bool) {
	for k := range r {
		r[k] = slices.DeleteFunc(r[k], func(p peak) bool { return p.last < before })
		left = left || len(r[k]) > 0
	}
	return left
}

// in returns the level that p would have had by chance in a window with the given number of requests. Levels vary more
// if there are fewer requests.
func (p *peak) in(requests uint64) float64 {
	return p.level * max(1, math.Sqrt(float64(p.requests)/float64(max(1, requests))))
}

// highest returns the highest level of kind k in healthy windows, or 0 if there is no peak. r may be nil.
func (r *record) highest(k kind) float64 {
	if r == nil || len(r[k]) == 0 {
		return 0
	}
	return r[k][0].level
}

// usual returns the level of kind k that chance exceeds in one of n^ratio windows with the given number of requests, if
// n windows were healthy. It is at least leastMargin times the highest level, or 0 if there is no peak. r may be nil.
//
// The tails of levels fall off about exponentially, with a mean θ. The expected value of the i-th highest level of n
// windows, counted from 0, is θ·(1/(i+1) + … + 1/n), so each peak gives an estimate of θ. We use the highest estimate.
func (r *record) usual(k kind, requests uint64, n, ratio float64) (level float64) {
	if r == nil || len(r[k]) == 0 {
		return 0
	}
	theta, odd := 0.0, min(mostOdd, int(n*oddWindows))
	for i := odd; i < len(r[k]); i++ {
		theta = max(theta, r[k][i].in(requests)/max(1, harmonic(n)-harmonic(float64(i))))
	}
	return max(leastMargin*r[k][0].in(requests), ratio*theta*math.Log(max(2, n)))
}

// harmonic returns an approximation of 1 + 1/2 + … + 1/n.
func harmonic(n float64) float64 {
	const euler = 0.5772156649015329
	if n < 1 {
		return n
	}
	return math.Log(n) + euler + 1/(2*n)
}
