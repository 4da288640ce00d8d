package shop

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// Request is what a customer asks for, and what services tell each other about it.
type Request struct {
	Seed     uint64  // of everything that is random about it
	Effort   float64 // how much work it is, compared with others; around 1
	Currency string
	Language string
	Tier     string
	Items    []int // numbers of products, at least one
}

// Values that the attributes of requests have, the last of each rarely.
var (
	currencies = []string{"EUR", "USD", "JPY"}
	languages  = []string{"en", "de", "fr"}
	tiers      = []string{"guest", "member", "gold"}
)

// Products is how many products the shop sells.
const Products = 2000

// NewRequest returns a customer's next request.
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

// mostly returns one of the values, the last one of them for a tenth of the requests.
func mostly(r *rand.Rand, values []string) string {
	last := len(values) - 1
	if r.IntN(10) == 0 {
		return values[last]
	}
	return values[r.IntN(last)]
}

// chance returns a number from 0 to 1 that depends on the request and on what it is drawn for only.
func (q *Request) chance(what string) float64 {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], q.Seed)
	h := xxhash.New()
	_, _ = h.Write(seed[:]) // never fails
	_, _ = h.WriteString(what)
	return float64(h.Sum64()>>11) / (1 << 53)
}
