package api

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/trace"
)

// side is the population of a comparison that a request belongs to.
type side int

const (
	neither side = iota
	first
	second
)

// side returns the side of a request whose time is known exactly.
func (b *box) side(o *observation.Observation) side {
	to := cmp.Or(b.to, trace.MaxNanos)
	if ns := o.Duration.Nanoseconds(); ns >= b.longer && ns < b.shorter && o.Start >= b.from && o.Start < to {
		return first
	}
	return second
}

// slowestSide returns a function that puts the slowest part of the requests, a fraction in [0, 1], on the first side
// and the others on the second. Requests of the same duration are on the same side.
func slowestSide(requests []*observation.Observation, part float64) func(*observation.Observation) side {
	durations := make([]int64, len(requests))
	for i, o := range requests {
		durations[i] = -o.Duration.Nanoseconds()
	}
	slices.Sort(durations)
	least := int64(math.MaxInt64)
	if n := int(math.Ceil(part * float64(len(durations)))); n > 0 {
		least = -durations[n-1]
	}
	return func(o *observation.Observation) side {
		if o.Duration.Nanoseconds() >= least {
			return first
		}
		return second
	}
}

// timesSide returns the side of a request by its start: the first is [from, to), the second [baseFrom, baseTo). An
// upper bound of 0 is none.
func timesSide(o *observation.Observation, from, to, baseFrom, baseTo trace.Nanos) side {
	switch {
	case o.Start >= from && o.Start < cmp.Or(to, trace.MaxNanos):
		return first
	case o.Start >= baseFrom && o.Start < cmp.Or(baseTo, trace.MaxNanos):
		return second
	}
	return neither
}

// shownAttributes limits the number of attribute values in a comparison.
const shownAttributes = 20

// attributes compares the attributes of the sampled requests of a group on both sides.
func (r renderer) attributes(group analysis.Hash, sampled []*observation.Observation, of func(*observation.Observation) side) contract.AttributeComparison {
	var sides [second + 1][]*observation.Observation
	for _, o := range sampled {
		sides[of(o)] = append(sides[of(o)], o)
	}
	found := r.core.Frequencies(group, sides[first], sides[second])
	c := contract.AttributeComparison{A: len(sides[first]), B: len(sides[second]), Items: make([]contract.AttributeDifference, 0, len(found))}
	for i := range found[:min(len(found), shownAttributes)] {
		f := &found[i]
		at := r.Last(f.Where)
		c.Items = append(c.Items, contract.AttributeDifference{
			Key: f.Key, Value: f.Value, Where: r.Context(f.Where), Service: r.Service(at), Text: f.Key + " = " + f.Value + " at " + r.Op(at),
			AShare: part(f.A, f.OfA), BShare: part(f.B, f.OfB), PValue: f.PValue, WithNs: number(f.Duration.Mean), WithoutNs: number(f.Duration.Rest),
			DifferenceNs: interval(f.Duration.Value, f.Duration.Low, f.Duration.High),
		})
	}
	return c
}

// part returns n/of; 0 for 0/0.
func part(n, of int) float64 { return float64(n) / float64(max(1, of)) }
