package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"gonum.org/v1/gonum/stat/distuv"
)

// Horizon is how many epochs of evidence count: 360, an hour of epochs of 10 s.
const Horizon = 360

// maxEpoch bounds what one epoch can multiply evidence by (e⁵), so that no single epoch convinces: it takes three, half a
// minute. A bet whose winnings are capped is still no better than fair.
const maxEpoch = 148.4

// alternatives are the odds ratios against the bound that Evidence bets on, with equal weights: the first is that of latencies which
// all rose by a tenth, which one above 2 would never notice.
var alternatives = [...]float64{1.4, 4, 8}

// Evidence is an anytime-valid test of the claim that an event has at most a given probability: a gambler who bets
// against the claim, epoch by epoch, and would on average win nothing if it held. One may look after every epoch and stop
// when one likes. The zero value is the state before the first epoch.
//
// For every alternative it holds the sum, over all epochs at which the change may have begun, of the likelihood ratio
// since then, each epoch's share of it forgotten at a rate of 1/Horizon (a Shiryaev–Roberts e-detector: Shin, Ramdas,
// Rinaldo 2023, "E-detectors: a nonparametric framework for sequential change detection"). While the claim holds its
// expectation never exceeds Horizon, so that Value is an e-value at every time, and a threshold c is crossed in an hour
// with probability at most 2/c.
//
// Requests of one epoch are not independent: a pause of the garbage collector hits many. Their likelihood ratio is raised
// to the power 1/(1+(n−1)·ρ), what n requests with intra-class correlation ρ are worth per request; a power below 1 keeps
// it a fair bet.
type Evidence struct{ sums [len(alternatives)]float64 }

// Step takes in one epoch: events among n requests, under the claim that an event has at most probability bound, in (0,
// 1); rho is the requests' intra-class correlation, in [0, 1]. An epoch without requests changes nothing. All shards'
// requests of an epoch must be counted together before.
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

// Value returns the e-value, at least 0: that it exceeds c has probability at most 1/c at any time while the claim holds.
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

// EBH returns the indices, ascending, of the hypotheses that e-Benjamini–Hochberg rejects: the false ones among them are
// at most a fraction alpha on average, whatever the dependence between the e-values. NaN counts as 0. Source: Wang and
// Ramdas 2022, "False discovery rate control with e-values".
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

// TestOptions say what counts as a change. Use [DefaultTestOptions] and change what you need.
type TestOptions struct {
	// Margin is the relative change of latency that is healthy, above 0. It must cover the whole swing of a
	// day, from the learning period to any other time: 0.2 for a daily curve and other drift of ±5 % each.
	Margin float64
	// MixMargin is the ratio by which the odds of a group may change within its request type, above 1.
	MixMargin float64
	// Rho is the least intra-class correlation of requests in the same epoch that is assumed, in [0, 1].
	Rho float64
	// Doubt is the probability that the reference's bounds are allowed to be wrong.
	Doubt float64
}

// DefaultTestOptions returns the options that the false-alarm rate was measured with.
func DefaultTestOptions() TestOptions {
	return TestOptions{Margin: 0.2, MixMargin: 1.5, Rho: 0.02, Doubt: 1e-3}
}

// upper returns the upper confidence limit (Clopper–Pearson) of the probability of an event seen k times in n requests of
// a number of epochs. Correlated requests count for less.
func (o TestOptions) upper(k, n uint64, epochs int) float64 {
	if n == 0 || k >= n {
		return 1
	}
	perEpoch := float64(n) / float64(max(1, epochs))
	worth := min(1, 1/(1+(perEpoch-1)*o.Rho))
	a, b := worth*float64(k)+1, worth*float64(n-k)
	return distuv.Beta{Alpha: a, Beta: b}.Quantile(1 - o.Doubt)
}

// Events are the kinds of event that a Reference bounds: the first two say that requests are slower, the others that they
// vary more.
const (
	slowerEvents   = 2
	variableEvents = 3
	events         = slowerEvents + variableEvents
)

// band is an event: a duration below low or above high. Its healthy probability is at most bound.
type band struct {
	low, high int64
	bound     float64
}

// Reference is what is healthy for a group, for [Change] to test against: limits of latency and upper confidence limits
// of the probability of exceeding them, both from the durations of the group's learning period. That it is an estimate is
// thereby taken into account: a change must show against the worst reference that is compatible with what was learned. It
// is immutable.
type Reference struct {
	n     uint64
	rho   float64
	bands [events]band
}

// NewReference learns from the durations in s; blocks are the moments of the same durations' logarithms epoch by epoch ([Sketch.Logs]),
// which tell how much alike those of one epoch are. Of logarithms, because what is counted are durations beyond limits, however far: of
// the durations themselves a few slow ones in one epoch, as when a service has just started, would decide everything.
//
// Slower are durations above the reference's median and above its 90th percentile, both raised by the margin: if all of a
// healthy group's durations grow by up to the margin, the probability of being beyond is still at most the learned one.
// More variable are those outside the central 80 %, outside the central 98 %, and outside twice that range, both ends
// moved by the margin. All of it works for any distribution, however heavy its tail.
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

// Samples returns the number of durations that the reference was learned from.
func (r *Reference) Samples() uint64 { return r.n }

// Counts are how often which event happened among the requests of one epoch. Counts of shards add up. The zero value is
// no requests.
type Counts struct {
	N      uint64
	Events [events]uint64
}

// Add counts a duration by the limits of r, in ns.
func (c *Counts) Add(r *Reference, ns int64) {
	c.N++
	for i := range r.bands {
		if ns < r.bands[i].low || ns > r.bands[i].high {
			c.Events[i]++
		}
	}
}

// Merge adds the requests of o, counted by the same reference.
func (c *Counts) Merge(o Counts) {
	c.N += o.N
	for i, k := range o.Events {
		c.Events[i] += k
	}
}

// Change is the evidence that a group is slower, or varies more, than its reference. The zero value is the state before
// the first epoch. A reference may be replaced between epochs; the evidence stays valid.
type Change struct{ evidence [events]Evidence }

// Step takes in one epoch, counted by r.
func (c *Change) Step(r *Reference, n Counts) {
	for i := range c.evidence {
		c.evidence[i].Step(r.bands[i].bound, n.Events[i], n.N, r.rho)
	}
}

// Slower returns the e-value against "latency did not rise by more than the margin".
func (c Change) Slower() float64 { return average(c.evidence[:slowerEvents]) }

// Variable returns the e-value against "no more requests than usual are far from the median, on either side". A group that is
// uniformly slower raises it as well; compare it with Slower.
func (c Change) Variable() float64 { return average(c.evidence[slowerEvents:]) }

// average returns the mean of e-values, which is an e-value however they depend on each other.
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

// DecodeChange reads what AppendBinary wrote and returns the bytes behind it. An error wraps [codec.ErrCorrupt].
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

// DecodeReference reads what AppendBinary wrote and returns the bytes behind it. An error wraps [codec.ErrCorrupt].
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

// fraction reads a float64 in [0, 1].
func readFraction(d *codec.Reader) float64 {
	f := d.Float()
	if !(f >= 0 && f <= 1) || math.Signbit(f) {
		d.Fail()
		return 0
	}
	return f
}
