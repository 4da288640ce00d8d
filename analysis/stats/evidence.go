package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"

	"gonum.org/v1/gonum/stat/distuv"
)

// Horizon is the number of epochs over which evidence decays: an hour of epochs of 10 s.
const Horizon = 360

// maxEpoch is the maximum growth factor (e⁵) of evidence per epoch, so that an alarm takes at least three epochs, half
// a minute. A fair bet remains at most fair if its winnings are capped.
const maxEpoch = 148.4

// alternatives are the odds ratios, relative to the bound, that Evidence bets on with equal weights. If all latencies
// rise by a tenth, the odds ratio is about equal to the first one; bets on ratios above 2 would never detect such a
// change.
var alternatives = [...]float64{1.4, 4, 8}

// Evidence is an anytime-valid test of the null hypothesis that an event has at most a given probability. It bets
// against the hypothesis epoch by epoch; under the hypothesis the expected gain is at most 0. It may be inspected after
// every epoch and stopped at any time. The zero value is the state before the first epoch.
//
// Evidence keeps a sum for every alternative: the sum of the likelihood ratios since each epoch in which the change may
// have started. The sum decays at a rate of 1/Horizon per epoch. This is a Shiryaev–Roberts e-detector (Shin, Ramdas,
// Rinaldo 2023, "E-detectors: a nonparametric framework for sequential change detection"). Under the hypothesis its
// expectation never exceeds Horizon. So Value is an e-value at all times, and it crosses a threshold c within an hour
// with probability at most 2/c.
//
// The requests of an epoch are not independent: for example, a pause of the garbage collector affects many of them.
// Their likelihood ratio is therefore raised to the power 1/(1+(n−1)·ρ), the effective fraction of n requests with
// intra-class correlation ρ. A power below 1 keeps the bet fair.
type Evidence struct{ sums [len(alternatives)]float64 }

// Step adds one epoch with events among n requests. The null hypothesis is that an event has at most probability bound,
// in (0, 1). rho is the intra-class correlation of the requests, in [0, 1]. Step ignores epochs without requests. It
// also ignores bounds outside (0, 1), because no number of events contradicts a bound of 1. The caller must first add
// up the counts of all shards.
func (e *Evidence) Step(bound float64, events, n uint64, rho float64) {
	if n == 0 || !(bound > 0 && bound < 1) {
		return
	}
	power := 1 / (1 + float64(n-1)*rho)
	for i, odds := range alternatives {
		rest := 1 - bound + odds*bound // (1−bound)/(1−alternative)
		ratio := power * (float64(events)*math.Log(odds) - float64(n)*math.Log(rest))
		e.sums[i] = min(1e300, ((1-1.0/Horizon)*e.sums[i]+1)*min(maxEpoch, math.Exp(ratio)))
	}
}

// Value returns the e-value, at least 0. It exceeds c with probability at most 1/c at any given time if the null
// hypothesis holds.
func (e Evidence) Value() float64 {
	var sum float64
	for _, s := range e.sums {
		sum += s / float64(len(e.sums))
	}
	return sum / Horizon
}

func (e Evidence) appendTo(b []byte) []byte {
	for _, s := range e.sums {
		b = codec.AppendFloats(b, s)
	}
	return b
}

func readEvidence(d *codec.Reader) (e Evidence) {
	for i := range e.sums {
		e.sums[i] = d.Float()
		if !(e.sums[i] >= 0 && e.sums[i] <= 1e300) || math.Signbit(e.sums[i]) {
			d.Fail()
			return Evidence{}
		}
	}
	return e
}

// EBH returns the indices, ascending, of the hypotheses that the e-Benjamini–Hochberg procedure rejects. The expected
// fraction of false rejections is at most alpha for any dependence between the e-values. NaN counts as 0. Source: Wang
// and Ramdas 2022, "False discovery rate control with e-values".
func EBH(evalues []float64, alpha float64) []int {
	order := []int{} // hypotheses that would be rejected if all others were
	for i, e := range evalues {
		if e*alpha*float64(len(evalues)) >= float64(len(evalues)) {
			order = append(order, i)
		}
	}
	sorting.Slice(order, func(a, b int) int { return cmp.Or(cmp.Compare(evalues[b], evalues[a]), cmp.Compare(a, b)) })
	rejected := 0
	for k, i := range order {
		if evalues[i]*alpha*float64(k+1) >= float64(len(evalues)) {
			rejected = k + 1
		}
	}
	out := order[:rejected]
	slices.Sort(out)
	return out
}

// TestOptions configure the tests for changes. Start from [DefaultTestOptions].
type TestOptions struct {
	// Margin is the relative change of latency that still counts as healthy, above 0. It must cover the variation
	// between the learning period and any other time of day: 0.2 covers a daily cycle and other drift of ±5 % each.
	Margin float64
	// MixMargin is the change of the odds of a group within its request type that still counts as healthy, as a ratio
	// above 1.
	MixMargin float64
	// Rho is the minimum intra-class correlation, in [0, 1], that we assume for the requests of an epoch.
	Rho float64
	// Alpha is the error probability of each bound of a reference.
	Alpha float64
}

// DefaultTestOptions returns the options for which the false-alarm rate was measured.
func DefaultTestOptions() TestOptions {
	return TestOptions{Margin: 0.2, MixMargin: 1.5, Rho: 0.02, Alpha: 1e-3}
}

// upper returns the upper confidence limit (Clopper–Pearson) of the probability of an event that was observed k times
// in n requests over the given number of epochs. Correlation reduces the effective number of requests.
func (o TestOptions) upper(k, n uint64, epochs int) float64 {
	if n == 0 || k >= n {
		return 1
	}
	perEpoch := float64(n) / float64(max(1, epochs))
	effective := min(1, 1/(1+(perEpoch-1)*o.Rho)) // effective fraction of the requests
	a, b := effective*float64(k)+1, effective*float64(n-k)
	return distuv.Beta{Alpha: a, Beta: b}.Quantile(1 - o.Alpha)
}

// The numbers of events that a Reference bounds. The first slowerEvents events are evidence of slower requests, and the
// others are evidence of more variable requests.
const (
	slowerEvents   = 2
	variableEvents = 3
	events         = slowerEvents + variableEvents
)

// band defines an event: a duration below low or above high, in ns. The probability of the event is at most bound while
// the group is healthy.
type band struct {
	low, high int64
	bound     float64
}

// Reference describes the healthy latency of a group, as [Change] requires it: limits of latency, and upper confidence
// limits of the probabilities of exceeding them. Both derive from the learning period of the group; the confidence
// limits account for the estimation error. A Reference is immutable.
type Reference struct {
	n     uint64
	rho   float64
	bands [events]band
}

// NewReference learns a reference from the durations in s. blocks are the moments of the logarithms of the same
// durations, one per epoch ([Sketch.Logs]); they yield the correlation within an epoch. We use logarithms because
// otherwise a few slow requests, for example after the start of a service, would dominate the correlation.
//
// Events of slower requests are durations above the median and above the 90th percentile, both raised by the margin. If
// all durations of a healthy group grow by up to the margin, these events are no more probable than learned. Events of
// more variable requests are durations outside the central 80 %, the central 98 %, and twice the range of the central
// 98 %, all extended by the margin. The bounds are valid for any distribution, even with heavy tails.
func NewReference(s *Sketch, blocks []Moments, o TestOptions) Reference {
	if rho := IntraClass(blocks); rho > o.Rho { // false for NaN
		o.Rho = rho
	}
	r := Reference{n: s.Count(), rho: o.Rho}
	inner := func(p, stretch float64) band {
		high, _ := s.UpperLimit(p)
		low, _ := s.LowerLimit(p)
		return band{low: int64(float64(low) / stretch), high: int64(min(MaxNanos, float64(high)*stretch))}
	}
	r.bands = [events]band{inner(0.5, 1), inner(0.1, 1), inner(0.1, 1), inner(0.01, 1), inner(0.01, 2)}
	for i := range r.bands {
		b := &r.bands[i]
		if i < slowerEvents {
			b.low = 0
		}
		b.bound = o.upper(s.Outside(b.low, b.high), r.n, len(blocks))
		*b = b.scaled(1/(1+o.Margin), 1+o.Margin)
	}
	return r
}

func (b band) scaled(low, high float64) band {
	b.low = int64(min(MaxNanos, float64(b.low)*low))
	b.high = int64(min(MaxNanos, math.Ceil(float64(b.high)*high)))
	return b
}

// Counts counts the requests of one epoch and the events among them. Counts of several shards can be merged. The zero
// value has no requests.
type Counts struct {
	N      uint64
	Events [events]uint64
}

// Add counts a request that took ns, and the events of r that it is part of.
func (c *Counts) Add(r *Reference, ns int64) {
	c.N++
	for i := range r.bands {
		if ns < r.bands[i].low || ns > r.bands[i].high {
			c.Events[i]++
		}
	}
}

// Merge adds the counts of o, which must refer to the same reference.
func (c *Counts) Merge(o Counts) {
	c.N += o.N
	for i, k := range o.Events {
		c.Events[i] += k
	}
}

// Change is the evidence that a group is slower, or varies more, than its reference. The zero value is the state before
// the first epoch. A reference may be replaced between epochs; the evidence stays valid.
type Change struct{ evidence [events]Evidence }

// Step adds n, the counts of one epoch, which must refer to r.
func (c *Change) Step(r *Reference, n Counts) {
	for i := range c.evidence {
		c.evidence[i].Step(r.bands[i].bound, n.Events[i], n.N, r.rho)
	}
}

// Slower returns the e-value against the hypothesis that latency rose by at most the margin.
func (c Change) Slower() float64 { return average(c.evidence[:slowerEvents]) }

// Variable returns the e-value against the hypothesis that no more requests than usual are far from the median, on
// either side. Uniformly slower requests raise the value, too, so compare it with Slower.
func (c Change) Variable() float64 { return average(c.evidence[slowerEvents:]) }

// average returns the mean of the e-values, which is an e-value whatever the dependence between them.
func average(es []Evidence) float64 {
	var sum float64
	for _, e := range es {
		sum += e.Value() / float64(len(es))
	}
	return sum
}

const (
	changeVersion    = 1
	referenceVersion = 1
	mixVersion       = 1
)

// AppendBinary appends c to b, in 121 bytes.
func (c Change) AppendBinary(b []byte) []byte {
	b = append(b, changeVersion)
	for _, e := range c.evidence {
		b = e.appendTo(b)
	}
	return b
}

// DecodeChange decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeChange(b []byte) (Change, []byte, error) {
	d := codec.NewReader(b)
	d.Version(changeVersion)
	var c Change
	for i := range c.evidence {
		c.evidence[i] = readEvidence(d)
	}
	if d.Bad() {
		return Change{}, nil, fmt.Errorf("%w: change", codec.ErrCorrupt)
	}
	return c, d.Rest(), nil
}

// AppendBinary appends r to b.
func (r Reference) AppendBinary(b []byte) []byte {
	b = append(b, referenceVersion)
	b = codec.AppendUvarints(b, r.n)
	b = codec.AppendFloats(b, r.rho)
	for _, x := range r.bands {
		b = codec.AppendUvarints(b, uint64(x.low))
		b = codec.AppendUvarints(b, uint64(x.high))
		b = codec.AppendFloats(b, x.bound)
	}
	return b
}

// DecodeReference decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeReference(b []byte) (Reference, []byte, error) {
	d := codec.NewReader(b)
	d.Version(referenceVersion)
	r := Reference{n: d.Below(MaxCount), rho: readFraction(d)}
	for i := range r.bands {
		r.bands[i] = band{int64(d.Below(MaxNanos + 1)), int64(d.Below(MaxNanos + 1)), readFraction(d)}
	}
	if d.Bad() {
		return Reference{}, nil, fmt.Errorf("%w: reference", codec.ErrCorrupt)
	}
	return r, d.Rest(), nil
}

// readFraction reads a float64 in [0, 1].
func readFraction(d *codec.Reader) float64 {
	f := d.Float()
	if !(f >= 0 && f <= 1) || math.Signbit(f) {
		d.Fail()
		return 0
	}
	return f
}
