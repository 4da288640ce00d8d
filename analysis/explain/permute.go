package explain

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// lowest returns, for each of `orders` random orders of the requests, the smallest p-value of any column by the F test.
// It permutes the residuals of f and tests the columns beyond f (Freedman and Lane 1983, "A nonstochastic
// interpretation of reported significance levels"). Equal seeds yield equal orders.
func (f *fit) lowest(columns []column, orders int, seed uint64) []float64 {
	var vectors [][][]float64 // by column
	most := 0
	for i := range columns {
		v := f.beyond(columns[i].controls(false))
		vectors = append(vectors, v)
		most = max(most, len(v))
	}
	rest := append([]float64(nil), f.rest...)
	r := rand.New(rand.NewPCG(seed, uint64(len(rest))))
	parts := make([]float64, most+1) // the largest fraction, by degrees of freedom
	lowest := make([]float64, orders)
	for i := range lowest {
		r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		f.largest(parts, rest, vectors)
		lowest[i] = 1
		for columns := 1; columns <= most; columns++ {
			if p := f.gainOf(parts[columns], columns).pValue(); p < lowest[i] {
				lowest[i] = p
			}
		}
	}
	return lowest
}

// largest sets parts[n] to the largest fraction of values that any set of n vectors explains beyond f.
func (f *fit) largest(parts, values []float64, vectors [][][]float64) {
	square := f.square
	for _, u := range f.vectors {
		d := floats.Dot(values, u)
		square -= d * d
	}
	clear(parts)
	for _, set := range vectors {
		var explained float64
		for _, v := range set {
			d := floats.Dot(values, v)
			explained += d * d
		}
		parts[len(set)] = max(parts[len(set)], min(1, explained/square))
	}
}
