package store

import (
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
)

// valueVersion is the first byte of an encoded value.
const valueVersion = 1

// appendValue returns the encoding of v, which must be of a type that package plain can encode.
func appendValue(v any) []byte { return plain.Append([]byte{valueVersion}, v) }

// decodeValue decodes b, the result of appendValue for a T. Errors wrap [codec.ErrCorrupt].
func decodeValue[T any](b []byte) (T, error) {
	var v, zero T
	r := codec.NewReader(b)
	r.Version(valueVersion)
	if err := r.Err(); err != nil {
		return zero, err
	}
	if err := plain.Decode(r.Rest(), &v); err != nil {
		return zero, err
	}
	return v, nil
}

// decompress decompresses packed, the result of s2.Encode. Errors wrap [codec.ErrCorrupt].
func decompress(packed []byte) ([]byte, error) {
	b, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return b, nil
}
