package stats

import (
	"math"
	"math/rand/v2"
)

// Posterior is what is believed of an unknown number, such as the share of a tracepoint: a normal distribution. It is a
// value; its methods return new ones. The zero value believes nothing and must not be drawn from.
type Posterior struct {
	Mean      float64
	Precision float64 // 1/variance, at least 0
}

// Believe returns the belief with this mean and standard deviation, above 0.
func Believe(mean, deviation float64) Posterior {
	return Posterior{mean, 1 / (deviation * deviation)}
}

// Deviation returns the standard deviation; +Inf where nothing is believed.
func (p Posterior) Deviation() float64 { return 1 / math.Sqrt(p.Precision) }

// Update returns the belief after an independent observation. The order of observations does not matter but for rounding.
func (p Posterior) Update(o Posterior) Posterior {
	sum := p.Precision + o.Precision
	if sum == 0 {
		return p
	}
	return Posterior{(p.Mean*p.Precision + o.Mean*o.Precision) / sum, sum}
}

// Observe returns the belief after an estimate with its interval. One without bounds changes nothing; one of no width
// counts as one of width 1e-6.
func (p Posterior) Observe(i Interval) Posterior {
	if !i.Valid() || math.IsInf(i.High-i.Low, 0) {
		return p
	}
	half := max(5e-7, (i.High-i.Low)/2)
	return p.Update(Believe(i.Value, half/normalQuantile))
}

// normalQuantile is the 97.5 % quantile of the standard normal distribution.
const normalQuantile = 1.959963984540054

// Age returns the belief with its deviation grown by factor, at least 1: what was learned long ago counts for less.
func (p Posterior) Age(factor float64) Posterior {
	p.Precision /= factor * factor
	return p
}

// Pool returns the belief about one more of a kind, from those about its siblings: centred at their weighted mean and as
// wide as they differ plus as they are uncertain (DerSimonian and Laird 1986). Without siblings it is prior.
func Pool(prior Posterior, siblings []Posterior) Posterior {
	var weights, squares, mean float64
	for _, s := range siblings {
		weights += s.Precision
		squares += s.Precision * s.Precision
		mean += s.Precision * s.Mean
	}
	if weights == 0 {
		return prior
	}
	mean /= weights
	var q float64
	for _, s := range siblings {
		q += s.Precision * (s.Mean - mean) * (s.Mean - mean)
	}
	between := 0.0
	if scale := weights - squares/weights; scale > 0 {
		between = max(0, (q-float64(len(siblings)-1))/scale)
	}
	return prior.Update(Posterior{mean, 1 / (between + 1/weights)})
}

// Draw returns a number drawn from the belief, for Thompson sampling.
func (p Posterior) Draw(r *rand.Rand) float64 { return p.Mean + r.NormFloat64()*p.Deviation() }
