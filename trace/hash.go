package trace

import "math/bits"

// Odd constants with well-spread bits: the first bits of the fractional parts of the golden ratio and of √2.
const (
	seedA = 0x9e3779b97f4a7c15
	seedB = 0x6a09e667f3bcc909
)

// mix combines a and b into one word. It folds their 128-bit product and mixes the bits, so that every bit of the
// result depends on all bits of both words. mix is not symmetric. It must never change, because all stored identities
// depend on it.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^seedA, bits.RotateLeft64(b, 32)^seedB)
	h := hi ^ lo
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// Mix combines the hashes a and b, in this order, into one. The result is stable across releases. It is never 0,
// because 0 means that there is no hash.
func Mix(a, b uint64) uint64 {
	if h := mix(a, b); h != 0 {
		return h
	}
	return seedA
}
