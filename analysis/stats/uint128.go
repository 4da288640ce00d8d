package stats

import (
	"math"
	"math/bits"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Uint128 is a 128-bit unsigned integer. Arithmetic is modulo 2^128.
type Uint128 struct{ Hi, Lo uint64 }

// Add returns a + b.
func (a Uint128) Add(b Uint128) Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Uint128{hi, lo}
}

// Add64 returns a + x.
func (a Uint128) Add64(x uint64) Uint128 {
	lo, carry := bits.Add64(a.Lo, x, 0)
	return Uint128{a.Hi + carry, lo}
}

// AddProduct returns a + x·y.
func (a Uint128) AddProduct(x, y uint64) Uint128 {
	hi, lo := bits.Mul64(x, y)
	return a.Add(Uint128{hi, lo})
}

// IsZero reports whether a is 0.
func (a Uint128) IsZero() bool { return a.Hi|a.Lo == 0 }

// Float64 returns the float64 nearest to a.
func (a Uint128) Float64() float64 { return wide{a.Lo, a.Hi}.float() }

// appendTo appends a as a varint of 1 to 19 bytes.
func (a Uint128) appendTo(b []byte) []byte { return codec.AppendUvarint128(b, a.Hi, a.Lo) }

// readUint128 decodes the output of appendTo.
func readUint128(r *codec.Reader) (a Uint128) {
	a.Hi, a.Lo = r.Uvarint128()
	return a
}

// wide is a 256-bit unsigned integer, the lowest word first. It holds exact intermediate results of variances, which
// are differences of huge and nearly equal numbers.
type wide [4]uint64

// mul128 returns a·b.
func mul128(a, b Uint128) (w wide) {
	for i, x := range [2]uint64{a.Lo, a.Hi} {
		var carry uint64
		for j, y := range [2]uint64{b.Lo, b.Hi} {
			hi, lo := bits.Mul64(x, y)
			lo, c := bits.Add64(lo, carry, 0)
			hi += c // cannot overflow: hi <= 2^64-2
			lo, c = bits.Add64(lo, w[i+j], 0)
			w[i+j], carry = lo, hi+c
		}
		w[i+2] = carry
	}
	return w
}

// cmp returns -1, 0 or 1 if a is less than, equal to or greater than b.
func (a wide) cmp(b wide) int {
	for i := 3; i >= 0; i-- {
		if a[i] != b[i] {
			if a[i] < b[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// sub returns a − b. a must not be less than b.
func (a wide) sub(b wide) (w wide) {
	var borrow uint64
	for i := range w {
		w[i], borrow = bits.Sub64(a[i], b[i], borrow)
	}
	return w
}

// diff returns a − b, rounded once.
func (a wide) diff(b wide) float64 {
	if a.cmp(b) < 0 {
		return -b.sub(a).float()
	}
	return a.sub(b).float()
}

// float returns the float64 nearest to a. It converts the upper 64 significant bits. The lowest of them is also set if
// any bit below is set (a sticky bit), so that the conversion rounds correctly.
func (a wide) float() float64 {
	top := 3
	for top > 0 && a[top] == 0 {
		top--
	}
	shift := uint(bits.LeadingZeros64(a[top]))
	if top == 0 {
		return float64(a[0])
	}
	m := a[top]<<shift | a[top-1]>>(64-shift)
	sticky := a[top-1] << shift
	for _, w := range a[:top-1] {
		sticky |= w
	}
	if sticky != 0 {
		m |= 1
	}
	return math.Ldexp(float64(m), 64*top-int(shift))
}
