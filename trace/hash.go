package trace

import "math/bits"

// Two odd constants with well-spread bits (the first fraction bits of the golden ratio and of √2).
const (
	seedA = 0x9e3779b97f4a7c15
	seedB = 0x6a09e667f3bcc909
)

// mix combines two words into one whose bits all depend on all bits of both (a 64×64→128 bit multiplication, folded). It is
// not symmetric. It is stable: changing it renumbers everything that was ever stored.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^seedA, bits.RotateLeft64(b, 32)^seedB)
	h := hi ^ lo
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// Mix combines two hashes into one, in this order. It is stable across releases and never returns 0, which stands for
// "none".
func Mix(a, b uint64) uint64 {
	if h := mix(a, b); h != 0 {
		return h
	}
	return seedA
}
