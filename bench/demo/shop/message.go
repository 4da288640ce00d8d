package shop

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// Request is a customer's request. Services pass it on to the services that they call.
type Request struct {
	Seed     uint64  // of random choices
	Effort   float64 // amount of work relative to other requests; around 1
	Currency string
	Language string
	Tier     string
	Items    []int // numbers of products, at least one
}

// Values of the attributes of requests. The last of each is rare.
var (
	currencies = []string{"EUR", "USD", "JPY"}
	languages  = []string{"en", "de", "fr"}
	tiers      = []string{"guest", "member", "gold"}
)

// Products is the number of products.
const Products = 2000

// NewRequest returns a random request.
func NewRequest(r *rand.Rand) Request {
	q := Request{
		Seed: r.Uint64(), Effort: math.Exp(0.2 * r.NormFloat64()),
		Currency: mostly(r, currencies), Language: mostly(r, languages), Tier: mostly(r, tiers),
	}
	for range 1 + r.IntN(4) {
		q.Items = append(q.Items, r.IntN(Products))
	}
	return q
}

// mostly returns a random value, the last one with a probability of 0.1.
func mostly(r *rand.Rand, values []string) string {
	last := len(values) - 1
	if r.IntN(10) == 0 {
		return values[last]
	}
	return values[r.IntN(last)]
}

// chance returns a number in [0, 1) for a random choice. It depends only on the request's seed and the name of the
// choice.
func (q *Request) chance(name string) float64 {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], q.Seed)
	h := xxhash.New()
	_, _ = h.Write(seed[:]) // never fails
	_, _ = h.WriteString(name)
	return float64(h.Sum64()>>11) / (1 << 53)
}
