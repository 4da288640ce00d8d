package store

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
)

// valueVersion is the first byte of an encoded value. Up to version 3 of the store a value was gob, whose first byte is
// the length of its first message, which is greater than 1.
const valueVersion = 1

// appendValue returns the encoding of v, which must be plain.
func appendValue(v any) []byte { return plain.Append([]byte{valueVersion}, v) }

// decodeValue returns the value that appendValue of this version or an older one encoded. An error wraps
// [codec.ErrCorrupt].
func decodeValue[T any](b []byte) (T, error) {
	var v, zero T
	if len(b) > 0 && b[0] == valueVersion {
		if err := plain.Decode(b[1:], &v); err != nil {
			return zero, err
		}
		return v, nil
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&v); err != nil {
		return zero, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return v, nil
}

// decompress returns the bytes that s2.Encode compressed. An error wraps [codec.ErrCorrupt].
func decompress(packed []byte) ([]byte, error) {
	b, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return b, nil
}
