package stats

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Uint128 is an unsigned integer of 128 bits. Arithmetic wraps around; the types that use it say why it cannot.
type Uint128 struct{ Hi, Lo uint64 }

// Add returns a + b.
func (a Uint128) Add(b Uint128) Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Uint128{hi, lo}
}

// Sub returns a − b, modulo 2^128.
func (a Uint128) Sub(b Uint128) Uint128 {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, _ := bits.Sub64(a.Hi, b.Hi, borrow)
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

// Mul64 returns a·x.
func (a Uint128) Mul64(x uint64) Uint128 {
	hi, lo := bits.Mul64(a.Lo, x)
	return Uint128{hi + a.Hi*x, lo}
}

// IsZero reports whether a is 0.
func (a Uint128) IsZero() bool { return a.Hi|a.Lo == 0 }

// Float64 returns the float64 nearest to a.
func (a Uint128) Float64() float64 { return wide{a.Lo, a.Hi}.float64() }

// appendTo appends a in groups of seven bits, the lowest first: 1 to 19 bytes, those of binary.AppendUvarint where a < 2^64.
func (a Uint128) appendTo(b []byte) []byte {
	for a.Hi != 0 || a.Lo >= 0x80 {
		b = append(b, byte(a.Lo)|0x80)
		a.Lo = a.Lo>>7 | a.Hi<<57
		a.Hi >>= 7
	}
	return append(b, byte(a.Lo))
}

// decoder reads what the encoders wrote. After the first error everything reads as 0, so that callers check once.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) fail() {
	d.rest, d.bad = nil, true
}

// uint128 reads what appendTo wrote and refuses any longer form of the same number.
func (d *decoder) uint128() (a Uint128) {
	for i, c := range d.rest {
		x := uint64(c & 0x7f)
		shift := uint(7 * i)
		if shift > 126 || shift == 126 && x > 3 || i > 0 && c == 0 {
			break
		}
		if shift < 64 {
			a.Lo |= x << shift
			a.Hi |= x >> (64 - shift) // 0 for shift 0: Go shifts by 64 give 0
		} else {
			a.Hi |= x << (shift - 64)
		}
		if c < 0x80 {
			d.rest = d.rest[i+1:]
			return a
		}
	}
	d.fail()
	return Uint128{}
}

func (d *decoder) uint64() uint64 {
	a := d.uint128()
	if a.Hi != 0 {
		d.fail()
		return 0
	}
	return a.Lo
}

// below reads a number that must be less than limit.
func (d *decoder) below(limit uint64) uint64 {
	u := d.uint64()
	if u >= limit {
		d.fail()
		return 0
	}
	return u
}

// fixed64 reads eight bytes, little endian.
func (d *decoder) fixed64() uint64 {
	if len(d.rest) < 8 {
		d.fail()
		return 0
	}
	u := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return u
}

// version reads the leading byte that names the form of an encoding.
func (d *decoder) version(want byte) {
	if len(d.rest) == 0 || d.rest[0] != want {
		d.fail()
		return
	}
	d.rest = d.rest[1:]
}

// wide is an unsigned integer of 256 bits, the lowest word first. It holds the exact intermediate results of variances, where
// floats would subtract two huge and nearly equal numbers.
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

// sub returns a − b for a >= b.
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
		return -b.sub(a).float64()
	}
	return a.sub(b).float64()
}

// float64 returns the float64 nearest to a: it takes the upper 64 significant bits, and notes in the last of them whether any
// bit below is set, so that the conversion, which rounds to even, rounds as if it saw them all.
func (a wide) float64() float64 {
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
