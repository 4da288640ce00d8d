package observation

import (
	"encoding/binary"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
)

const packerVersion = 1

// AppendBinary appends the dictionary of p to b, so that what p packed can be unpacked after a restart.
func (p *Packer) AppendBinary(b []byte) []byte {
	b = append(b, packerVersion)
	b = appendNumbered(b, &p.contexts, fullContext)
	b = appendNumbered(b, &p.edges, fullEdge)
	b = appendNumbered(b, &p.places, fullPlace)
	return appendNumbered(b, &p.ops, fullOp)
}

func appendNumbered[T comparable](b []byte, n *numbered[T], full func([]byte, T) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(n.values)))
	for _, v := range n.values {
		b = full(b, v)
	}
	return b
}

// Sizes of what stands in a dictionary.
const (
	packedContextSize = 4 * 8
	packedEdgeSize    = 6 * 8
	packedPlaceSize   = 2*8 + 1
	packedOpSize      = 8
)

// DecodePacker returns the Packer that AppendBinary wrote, and the bytes behind it. An error wraps [codec.ErrCorrupt].
func DecodePacker(b []byte) (*Packer, []byte, error) {
	d := codec.NewReader(b)
	d.Version(packerVersion)
	p := &Packer{}
	readNumbered(d, &p.contexts, packedContextSize, readContext)
	readNumbered(d, &p.edges, packedEdgeSize, readEdge)
	readNumbered(d, &p.places, packedPlaceSize, readPlace)
	readNumbered(d, &p.ops, packedOpSize, readOp)
	if d.Bad() {
		return nil, nil, codec.ErrCorrupt
	}
	return p, d.Rest(), nil
}

// readNumbered reads values of the given size in bytes, each of which must be another.
func readNumbered[T comparable](d *codec.Reader, n *numbered[T], size int, full func(*reader) T) {
	for range d.Count(size) {
		v := full(&reader{d.Bytes(size)})
		if _, twice := n.numbers[v]; twice {
			d.Fail()
			return
		}
		n.number(v, len(n.values)+1)
	}
}

// AppendObservation appends o to b on its own: many times what a [Packer] makes of it, but fit to be read by anybody.
func AppendObservation(b []byte, o *Observation) []byte {
	return (&Packer{Limit: -1}).Append(b, o)
}

// DecodeObservation returns the observation that AppendObservation wrote, and the bytes behind it. An error wraps [codec.ErrCorrupt].
func DecodeObservation(b []byte) (o *Observation, rest []byte, err error) {
	defer func() {
		if recover() != nil { // the packed form is not meant for strangers; bytes that are too short make it panic
			o, rest, err = nil, nil, codec.ErrCorrupt
		}
	}()
	o = &Observation{}
	return o, (&Packer{}).Unpack(b, o), nil
}
