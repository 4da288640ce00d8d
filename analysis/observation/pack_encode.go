package observation

import (
	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Layouts of an encoded [Packer], given by its first byte.
const (
	plainLayout  = 1 // Packer.plain
	packerLayout = 2
)

// AppendBinary appends the dictionary of p to b, so that the observations that p packed can be unpacked after a
// restart.
func (p *Packer) AppendBinary(b []byte) []byte {
	if p.plain {
		b = append(b, plainLayout)
		b = appendDictionary(b, &p.contexts, appendPlainContext)
	} else {
		b = append(b, packerLayout)
		b = appendDictionary(b, &p.contexts, appendContext)
	}
	b = appendDictionary(b, &p.edges, appendEdge)
	b = appendDictionary(b, &p.places, appendPlace)
	return appendDictionary(b, &p.ops, appendOp)
}

func appendDictionary[T comparable](b []byte, d *dictionary[T], appendValue func([]byte, T) []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(d.values)))
	for _, v := range d.values {
		b = appendValue(b, v)
	}
	return b
}

// Sizes of dictionary values in bytes.
const (
	plainContextSize  = 5 * 8
	packedContextSize = 6 * 8
	packedEdgeSize    = 5 * 8
	packedPlaceSize   = 2*8 + 1
	packedOpSize      = 8
)

// DecodePacker returns the Packer that AppendBinary encoded, with the default limit, and the bytes after it. Errors
// wrap [codec.ErrCorrupt].
func DecodePacker(b []byte) (*Packer, []byte, error) {
	r := codec.NewReader(b)
	p := &Packer{plain: r.Version(packerLayout, plainLayout) == plainLayout}
	if p.plain {
		readDictionary(r, &p.contexts, plainContextSize, readPlainContext)
	} else {
		readDictionary(r, &p.contexts, packedContextSize, readContext)
	}
	readDictionary(r, &p.edges, packedEdgeSize, readEdge)
	readDictionary(r, &p.places, packedPlaceSize, readPlace)
	readDictionary(r, &p.ops, packedOpSize, readOp)
	if err := r.Err(); err != nil {
		return nil, nil, err
	}
	return p, r.Rest(), nil
}

// readDictionary fills d. The values read must be distinct and take at least size bytes each.
func readDictionary[T comparable](r *codec.Reader, d *dictionary[T], size int, readValue func(*codec.Reader) T) {
	for n := range r.Count(size) {
		v := readValue(r)
		if r.Bad() || d.number(v, n+1) != uint64(n+1) {
			r.Fail()
			return
		}
	}
}

// AppendObservation appends o to b without using a dictionary. The encoding is several times larger than the packed
// form, but needs no [Packer]. It lacks peers, unanswered calls and the sums of the path.
func AppendObservation(b []byte, o *Observation) []byte {
	return (&Packer{Limit: -1, plain: true}).Append(b, o)
}

// DecodeObservation returns the observation that AppendObservation encoded, and the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeObservation(b []byte) (*Observation, []byte, error) {
	o := &Observation{}
	rest, err := (&Packer{plain: true}).Unpack(b, o)
	if err != nil {
		return nil, nil, err
	}
	return o, rest, nil
}
