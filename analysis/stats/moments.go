package stats

import (
	"fmt"
	"math"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// MaxCount is the exclusive upper limit on the number of durations in a Moments. Below it no sum overflows (2^34 ·
// (2^47)² = 2^128). A group with 100,000 requests per second reaches it after two days.
const MaxCount = 1 << 34

// Moments are the exact first two moments of a set of durations in nanoseconds. The zero value is the empty set. Adding
// and merging are exactly associative and commutative. Only the reported figures are floats, rounded from exact
// numerators.
type Moments struct {
	N    uint64  // durations, below MaxCount
	Sum  Uint128 // Σx, ns
	Sum2 Uint128 // Σx², ns²
}

// Add adds a duration. It panics if ns is outside [0, MaxNanos).
func (m *Moments) Add(ns int64) {
	x := checked(ns)
	m.N++
	m.Sum = m.Sum.Add64(x)
	m.Sum2 = m.Sum2.AddProduct(x, x)
}

// checked returns ns as an unsigned integer. It panics if ns is outside [0, MaxNanos), because sums could overflow.
func checked(ns int64) uint64 {
	if uint64(ns) >= MaxNanos {
		panic(fmt.Sprintf("stats: duration %d outside [0, 2^47)", ns))
	}
	return uint64(ns)
}

// Merge adds the durations of o.
func (m *Moments) Merge(o Moments) {
	m.N += o.N
	m.Sum = m.Sum.Add(o.Sum)
	m.Sum2 = m.Sum2.Add(o.Sum2)
}

// Mean returns the mean in ns, or NaN for the empty set.
func (m Moments) Mean() float64 { return m.Sum.Float64() / float64(m.N) }

// Variance returns the sample variance (n−1) in ns², at least 0, or NaN if there are fewer than two durations.
func (m Moments) Variance() float64 {
	return m.spread() / pairs(m.N)
}

// StdDev returns the sample standard deviation in ns, or NaN if there are fewer than two durations.
func (m Moments) StdDev() float64 { return math.Sqrt(m.Variance()) }

// CoV returns the coefficient of variation σ/μ, dimensionless and at least 0, with the sample standard deviation (n−1).
// It is NaN if there are fewer than two durations, or if the mean is 0.
func (m Moments) CoV() float64 {
	if m.Sum.IsZero() {
		return math.NaN()
	}
	return m.StdDev() / m.Mean()
}

// spread returns n·Σx² − (Σx)², which equals n(n−1) times the variance.
func (m Moments) spread() float64 {
	return mul128(m.Sum2, Uint128{Lo: m.N}).diff(mul128(m.Sum, m.Sum))
}

// valid reports whether m can be the moments of a set of durations.
func (m Moments) valid() bool {
	if m.N >= MaxCount || m.N == 0 && !m.Sum.Add(m.Sum2).IsZero() {
		return false
	}
	return mul128(m.Sum2, Uint128{Lo: m.N}).cmp(mul128(m.Sum, m.Sum)) >= 0
}

// pairs returns n(n−1). It returns NaN for n < 2, because there is no sample variance.
func pairs(n uint64) float64 {
	if n < 2 {
		return math.NaN()
	}
	return float64(n) * float64(n-1)
}

// AppendBinary appends m to b as three variable-length integers, 3 to 43 bytes. Equal sets have equal encodings.
func (m Moments) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(b, m.N)
	b = m.Sum.appendTo(b)
	return m.Sum2.appendTo(b)
}

// DecodeMoments decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeMoments(b []byte) (Moments, []byte, error) {
	d := codec.NewReader(b)
	m := readMoments(d)
	if d.Bad() {
		return Moments{}, nil, fmt.Errorf("%w: moments", codec.ErrCorrupt)
	}
	return m, d.Rest(), nil
}

func readMoments(d *codec.Reader) Moments {
	m := Moments{N: d.Uvarint(), Sum: readUint128(d), Sum2: readUint128(d)}
	if !m.valid() {
		d.Fail()
		return Moments{}
	}
	return m
}

// BetweenShare returns the share, in [0, 1], of the total variance that lies between the means of the groups (η²),
// rather than within groups. It is NaN if the total has no variance.
func BetweenShare(groups []Moments) float64 {
	var all Moments
	var within float64
	for _, g := range groups {
		all.Merge(g)
		if g.N > 0 {
			within += g.spread() / float64(g.N)
		}
	}
	total := all.spread() / float64(all.N)
	if !(total > 0) {
		return math.NaN()
	}
	return min(1, max(0, 1-within/total))
}

// IntraClass returns the intra-class correlation of values within blocks (one-way analysis of variance), clamped to [0,
// 1]. It is NaN if there are fewer than two non-empty blocks, if no block has two values, or if there is no variance.
// Source: Donner 1986, "A review of inference procedures for the intraclass correlation coefficient".
func IntraClass(blocks []Moments) float64 {
	var all Moments
	var within, squares, filled float64
	for _, b := range blocks {
		if b.N == 0 {
			continue
		}
		all.Merge(b)
		filled++
		within += b.spread() / float64(b.N)
		squares += float64(b.N) * float64(b.N)
	}
	n := float64(all.N)
	if filled < 2 || n <= filled {
		return math.NaN()
	}
	typical := (n - squares/n) / (filled - 1) // block size, corrected for unequal blocks
	msb := (all.spread()/n - within) / (filled - 1)
	msw := within / (n - filled)
	return min(1, max(0, (msb-msw)/(msb+(typical-1)*msw)))
}

// CoMoments are exact sums over the time x in one edge and the total time T of the same requests. Requests that did not
// execute the edge have x = 0 and need not be added. The methods take the moments of T over all requests.
type CoMoments struct {
	Sum  Uint128 // Σx, ns
	Sum2 Uint128 // Σx², ns²
	SumT Uint128 // Σx·T, ns²
}

// Add adds a request that spent x ns of its total ns in the edge. It panics unless both are in [0, MaxNanos).
func (c *CoMoments) Add(x, total int64) {
	ux, ut := checked(x), checked(total)
	c.Sum = c.Sum.Add64(ux)
	c.Sum2 = c.Sum2.AddProduct(ux, ux)
	c.SumT = c.SumT.AddProduct(ux, ut)
}

// Merge adds the requests of o.
func (c *CoMoments) Merge(o CoMoments) {
	c.Sum = c.Sum.Add(o.Sum)
	c.Sum2 = c.Sum2.Add(o.Sum2)
	c.SumT = c.SumT.Add(o.SumT)
}

// Moments returns the moments of x over n requests.
func (c CoMoments) Moments(n uint64) Moments { return Moments{N: n, Sum: c.Sum, Sum2: c.Sum2} }

// Cov returns the sample covariance (n−1) of x and T in ns², or NaN if there are fewer than two requests.
func (c CoMoments) Cov(t Moments) float64 { return c.cross(t) / pairs(t.N) }

// Share returns the edge's share of the variance, Cov(x,T)/Var(T). The shares of a partition of T add up to 1; a single
// share can be negative or above 1. Share returns NaN if T has no variance.
func (c CoMoments) Share(t Moments) float64 {
	total := t.spread()
	if !(total > 0) {
		return math.NaN()
	}
	return c.cross(t) / total
}

// MeanShare returns the edge's share of the mean, E(x)/E(T). The share is in [0, 1] if x is part of T, and NaN if T is
// 0.
func (c CoMoments) MeanShare(t Moments) float64 { return c.Sum.Float64() / t.Sum.Float64() }

// cross returns n·Σx·T − Σx·ΣT.
func (c CoMoments) cross(t Moments) float64 {
	return mul128(c.SumT, Uint128{Lo: t.N}).diff(mul128(c.Sum, t.Sum))
}

// AppendBinary appends c to b as three variable-length integers, 3 to 57 bytes.
func (c CoMoments) AppendBinary(b []byte) []byte {
	b = c.Sum.appendTo(b)
	b = c.Sum2.appendTo(b)
	return c.SumT.appendTo(b)
}

// DecodeCoMoments decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeCoMoments(b []byte) (CoMoments, []byte, error) {
	d := codec.NewReader(b)
	c := CoMoments{Sum: readUint128(d), Sum2: readUint128(d), SumT: readUint128(d)}
	if d.Bad() {
		return CoMoments{}, nil, fmt.Errorf("%w: co-moments", codec.ErrCorrupt)
	}
	return c, d.Rest(), nil
}

// PairMoments are the exact sums of k variables and of all their products. They determine every covariance. The first
// call to Add sets k.
type PairMoments struct {
	N        uint64
	Sums     []Uint128 // Σx_i, k of them
	Products []Uint128 // Σx_i·x_j for j <= i, at i(i+1)/2+j
}

// Add adds one request. It panics unless xs has length k and values in [0, MaxNanos).
func (p *PairMoments) Add(xs []int64) {
	p.size(len(xs))
	p.N++
	at := 0
	for i, x := range xs {
		u := checked(x)
		p.Sums[i] = p.Sums[i].Add64(u)
		for _, y := range xs[:i+1] {
			p.Products[at] = p.Products[at].AddProduct(u, uint64(y))
			at++
		}
	}
}

// size allocates memory for k variables, and panics if p already has another number of variables.
func (p *PairMoments) size(k int) {
	if p.Sums == nil {
		p.Sums, p.Products = make([]Uint128, k), make([]Uint128, k*(k+1)/2)
	}
	if len(p.Sums) != k {
		panic(fmt.Sprintf("stats: %d variables for pair moments of %d", k, len(p.Sums)))
	}
}

// Cov returns the sample covariance (n−1) of variables i and j in ns², or NaN if there are fewer than two requests.
func (p PairMoments) Cov(i, j int) float64 {
	if j > i {
		i, j = j, i
	}
	cross := mul128(p.Products[i*(i+1)/2+j], Uint128{Lo: p.N}).diff(mul128(p.Sums[i], p.Sums[j]))
	return cross / pairs(p.N)
}

// maxPairs is the exclusive upper limit on k when decoding.
const maxPairs = 1 << 10

// AppendBinary appends p to b.
func (p PairMoments) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(p.Sums)))
	b = codec.AppendUvarints(b, p.N)
	for _, s := range p.Sums {
		b = s.appendTo(b)
	}
	for _, s := range p.Products {
		b = s.appendTo(b)
	}
	return b
}

// DecodePairMoments decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodePairMoments(b []byte) (PairMoments, []byte, error) {
	d := codec.NewReader(b)
	k := int(d.Below(maxPairs))
	p := PairMoments{N: d.Below(MaxCount)}
	if k*(k+3)/2 > d.Len() || k == 0 && p.N > 0 {
		d.Fail()
	}
	if !d.Bad() && k > 0 {
		p.size(k)
	}
	for i := range p.Sums {
		p.Sums[i] = readUint128(d)
	}
	for i := range p.Products {
		p.Products[i] = readUint128(d)
	}
	if d.Bad() {
		return PairMoments{}, nil, fmt.Errorf("%w: pair moments", codec.ErrCorrupt)
	}
	return p, d.Rest(), nil
}
