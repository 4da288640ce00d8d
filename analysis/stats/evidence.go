package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"gonum.org/v1/gonum/stat/distuv"
)

// Horizon is the memory of the evidence in epochs: 360, an hour of epochs of 10 s.
const Horizon = 360

// maxEpoch bounds the factor by which one epoch can multiply evidence (e⁵), so that at least three epochs, half a
// minute, are needed to convince. Capping a likelihood ratio only lowers its expectation, so the test remains valid.
const maxEpoch = 148.4

// alternatives are the odds ratios, relative to the bound, that Evidence bets on with equal weights. The first
// corresponds to a uniform increase of latency by a tenth, which alternatives above 2 would never detect.
var alternatives = [...]float64{1.4, 4, 8}

// Evidence is an anytime-valid test of the hypothesis that an event has at most a given probability. It is a gambler
// who bets against the hypothesis, epoch by epoch, and on average wins nothing if it holds. The test may be evaluated
// after every epoch and stopped at any time. The zero value is the state before the first epoch.
//
// For every alternative it holds a sum of likelihood ratios, each from one epoch at which the change may have begun
// until now. The sum decays at a rate of 1/Horizon per epoch. This is a Shiryaev–Roberts e-detector: Shin, Ramdas,
// Rinaldo 2023, "E-detectors: a nonparametric framework for sequential change detection". Under the hypothesis the
// expectation of the sum never exceeds Horizon, so Value is an e-value at every time, and it crosses a threshold c
// within an hour with probability at most 2/c.
//
// Requests of one epoch are not independent: a garbage-collection pause hits many. Their likelihood ratio is therefore
// raised to the power 1/(1+(n−1)·ρ), the effective sample size per request if the intra-class correlation is ρ. A power
// of at most 1 keeps the bet fair.
type Evidence struct{ sums [len(alternatives)]float64 }

// Step adds one epoch with events among n requests, under the hypothesis that the probability of an event is at most
// bound, in (0, 1). rho is the intra-class correlation of the requests, in [0, 1]. An epoch without requests changes
// nothing. Counts of all shards for the epoch must be summed before the call.
func (e *Evidence) Step(bound float64, events, n uint64, rho float64) {
	if n == 0 || !(bound > 0 && bound < 1) {
		return
	}
	power := 1 / (1 + float64(n-1)*rho)
	for i, odds := range alternatives {
		norm := 1 - bound + odds*bound // (1−bound)/(1−alternative)
		ratio := power * (float64(events)*math.Log(odds) - float64(n)*math.Log(norm))
		e.sums[i] = min(1e300, ((1-1.0/Horizon)*e.sums[i]+1)*min(maxEpoch, math.Exp(ratio)))
	}
}

// Value returns the e-value, at least 0. While the hypothesis holds, the probability that it exceeds c at a given time
// is at most 1/c.
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

// EBH returns the indices, ascending, of the hypotheses that e-Benjamini–Hochberg rejects. The expected fraction of
// false rejections among them is at most alpha, whatever the dependence between the e-values. NaN counts as 0. Source:
// Wang and Ramdas 2022, "False discovery rate control with e-values".
func EBH(evalues []float64, alpha float64) []int {
	order := make([]int, 0, len(evalues))
	for i, e := range evalues {
		if e > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(evalues[b], evalues[a]), cmp.Compare(a, b)) })
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

// TestOptions define a change. Start from [DefaultTestOptions].
type TestOptions struct {
	// Margin is the relative change of latency that is still healthy, above 0. It must cover the whole swing of a day,
	// from the learning period to any other time: 0.2 for a daily curve and other drift of ±5 % each.
	Margin float64
	// MixMargin is the ratio by which the odds of a group within its request type may change, above 1.
	MixMargin float64
	// Rho is a lower bound of the intra-class correlation of requests in the same epoch, in [0, 1]. A higher estimate
	// from the data overrides it.
	Rho float64
	// Doubt is the error probability of each upper confidence limit in a reference: 1 − its confidence level.
	Doubt float64
}

// DefaultTestOptions returns the options with which the false-alarm rate was measured.
func DefaultTestOptions() TestOptions {
	return TestOptions{Margin: 0.2, MixMargin: 1.5, Rho: 0.02, Doubt: 1e-3}
}

// upper returns the upper confidence limit (Clopper–Pearson) of the probability of an event that occurred k times in n
// requests over the given number of epochs. Correlation reduces the counts to their effective sample size.
func (o TestOptions) upper(k, n uint64, epochs int) float64 {
	if n == 0 || k >= n {
		return 1
	}
	perEpoch := float64(n) / float64(max(1, epochs))
	efficiency := min(1, 1/(1+(perEpoch-1)*o.Rho))
	a, b := efficiency*float64(k)+1, efficiency*float64(n-k)
	return distuv.Beta{Alpha: a, Beta: b}.Quantile(1 - o.Doubt)
}

// The events that a Reference bounds: the first two indicate slower requests, the others more variable ones.
const (
	slowerEvents   = 2
	variableEvents = 3
	events         = slowerEvents + variableEvents
)

// band is an event: a duration below low or above high, in ns. If the group is healthy, its probability is at most
// bound.
type band struct {
	low, high int64
	bound     float64
}

// Reference is the healthy distribution of a group that [Change] tests against: latency limits, and upper confidence
// limits of the probability of exceeding them. Both come from the durations of the group's learning period. The
// confidence limits account for the uncertainty of this estimate: a change must be significant against the worst
// reference that is compatible with the learned data. A Reference is immutable.
type Reference struct {
	n     uint64
	rho   float64
	bands [events]band
}

// NewReference learns a reference from the durations in s. blocks are the moments of the logarithms of the same
// durations, one per epoch ([Sketch.Logs]). They yield the intra-class correlation of an epoch's requests. Logarithms
// are used because the test counts durations beyond limits, regardless of how far beyond. With raw durations a few slow
// requests in one epoch, as after the start of a service, would dominate the estimate.
//
// Slower requests exceed the median or the 90th percentile of the reference, both raised by the margin. If all
// durations of a healthy group grow by at most the margin, the probability of exceeding a limit is still at most the
// learned one. More variable requests lie outside the central 80 %, outside the central 98 %, or outside the central 98
// % with its low end halved and its high end doubled; the margin widens all three. The limits are valid for any
// distribution, however heavy its tail.
func NewReference(s *Sketch, blocks []Moments, o TestOptions) Reference {
	if rho := IntraClass(blocks); rho > o.Rho { // false for NaN
		o.Rho = rho
	}
	r := Reference{n: s.Count(), rho: o.Rho}
	inner := func(p, stretch float64) band {
		high, _ := s.Exceed(p)
		low, _ := s.Undercut(p)
		return band{low: int64(float64(low) / stretch), high: int64(min(MaxNanos, float64(high)*stretch))}
	}
	r.bands = [events]band{inner(0.5, 1), inner(0.1, 1), inner(0.1, 1), inner(0.01, 1), inner(0.01, 2)}
	for i := range r.bands {
		b := &r.bands[i]
		if i < slowerEvents {
			b.low = 0
		}
		b.bound = o.upper(s.Beyond(b.low, b.high), r.n, len(blocks))
		*b = b.scaled(1/(1+o.Margin), 1+o.Margin)
	}
	return r
}

func (b band) scaled(low, high float64) band {
	b.low = int64(min(MaxNanos, float64(b.low)*low))
	b.high = int64(min(MaxNanos, math.Ceil(float64(b.high)*high)))
	return b
}

// Samples returns the number of durations from which the reference was learned.
func (r *Reference) Samples() uint64 { return r.n }

// Counts holds the number of requests in one epoch and the number of occurrences of each event among them. Counts of
// shards add up. The zero value stands for no requests.
type Counts struct {
	N      uint64
	Events [events]uint64
}

// Add counts a duration, in ns, against the limits of r.
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

// Change accumulates evidence that a group is slower, or more variable, than its reference. The zero value is the state
// before the first epoch. The reference may be replaced between epochs; the evidence remains valid.
type Change struct{ evidence [events]Evidence }

// Step adds one epoch, counted against r.
func (c *Change) Step(r *Reference, n Counts) {
	for i := range c.evidence {
		c.evidence[i].Step(r.bands[i].bound, n.Events[i], n.N, r.rho)
	}
}

// Slower returns the e-value against the hypothesis that latency did not rise by more than the margin.
func (c Change) Slower() float64 { return average(c.evidence[:slowerEvents]) }

// Variable returns the e-value against the hypothesis that no more requests than usual are far from the median, on
// either side. A uniformly slower group raises it as well; compare it with Slower.
func (c Change) Variable() float64 { return average(c.evidence[slowerEvents:]) }

// average returns the mean of e-values, which is itself an e-value under any dependence between them.
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

// AppendBinary appends c to b: 121 bytes.
func (c Change) AppendBinary(b []byte) []byte {
	b = append(b, changeVersion)
	for _, e := range c.evidence {
		b = e.appendTo(b)
	}
	return b
}

// DecodeChange decodes the output of AppendBinary and returns the remaining bytes. An error wraps [codec.ErrCorrupt].
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

// DecodeReference decodes the output of AppendBinary and returns the remaining bytes. An error wraps
// [codec.ErrCorrupt].
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
