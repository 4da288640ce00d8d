// Package plain encodes plain values for saved state: structs of exported fields, slices, maps, strings and numbers.
// The bytes contain the names of fields (the cbor or json tag, or else the Go name), so a version that adds or drops a
// field still reads the others.
//
// The form is deterministic CBOR (RFC 8949, section 4.2.1): equal values give equal bytes.
package plain

import (
	"fmt"
	"math"

	"github.com/fxamacker/cbor/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

var (
	encoding = must(cbor.CoreDetEncOptions().EncMode())
	decoding = must(cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		// The length of the input limits the number of elements. The library's own limits are lower and would refuse
		// large states.
		MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32,
	}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}

// Append appends the encoding of v to b. It panics if v is not plain, such as a channel, a function or an interface.
func Append(b []byte, v any) []byte {
	data, err := encoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("plain: %v", err))
	}
	return append(b, data...)
}

// Decode decodes b, which must contain exactly one value, into the value that v points to. It ignores fields that v
// lacks. If b is invalid, Decode returns an error that wraps [codec.ErrCorrupt], and v may be partially decoded. Decode
// keeps no reference to b.
func Decode(b []byte, v any) error {
	if err := decoding.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	return nil
}
