package store

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
)

// valueVersion is the first byte of an encoded value. Up to version 3 of the store values were gob, which never begins with it: a gob
// begins with the length of its first message, which is greater than 1.
const valueVersion = 1

// appendValue returns the encoding of v, a plain value.
func appendValue(v any) []byte { return plain.Append([]byte{valueVersion}, v) }

// decodeValue decodes b, which appendValue of this version or an older one returned, into the value that v points to. An error wraps
// [codec.ErrCorrupt].
func decodeValue(b []byte, v any) error {
	if len(b) > 0 && b[0] == valueVersion {
		return plain.Decode(b[1:], v)
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		return fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return nil
}

// decompress returns the bytes that s2.Encode compressed. An error wraps [codec.ErrCorrupt].
func decompress(packed []byte) ([]byte, error) {
	b, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return b, nil
}
