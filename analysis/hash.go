package analysis

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/sibyl-trace/sibyl/trace"
)

// Hash is a 128-bit content hash: the identity of a skeleton, request type, group or problem.
type Hash struct{ Hi, Lo uint64 }

// IsZero reports whether h is the zero Hash, which identifies nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// Compare orders hashes as 128-bit numbers.
func (h Hash) Compare(g Hash) int { return cmp.Or(cmp.Compare(h.Hi, g.Hi), cmp.Compare(h.Lo, g.Lo)) }

// String returns h as 32 lower-case hex digits.
func (h Hash) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], h.Hi)
	binary.BigEndian.PutUint64(b[8:], h.Lo)
	return hex.EncodeToString(b[:])
}

// ErrBadHash is the error of [ParseHash].
var ErrBadHash = errors.New("want 32 hexadecimal digits")

// ParseHash parses 32 hex digits in upper or lower case. It returns the zero Hash and [ErrBadHash] for any other text.
func ParseHash(s string) (Hash, error) {
	var b [16]byte
	if len(s) != 32 {
		return Hash{}, ErrBadHash
	}
	if _, err := hex.Decode(b[:], []byte(s)); err != nil {
		return Hash{}, ErrBadHash
	}
	return Hash{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}, nil
}

// secondHalf makes the two halves of a Hash independent.
const secondHalf = 0xd6e8feb86659fd93

// HashOf returns the hash of words, in order.
func HashOf[W ~uint64](words ...W) Hash {
	h := Hash{Hi: 1, Lo: secondHalf}
	for _, w := range words {
		h.Hi = trace.Mix(h.Hi, uint64(w))
		h.Lo = trace.Mix(uint64(w)^secondHalf, h.Lo)
	}
	return h
}
