// Package protowriter writes protobuf messages field by field, for decoders that translate JSON to OTLP. It writes
// directly to the output and creates no objects for fields.
package protowriter

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Writer appends fields to Bytes. The zero Writer is ready to use.
type Writer struct{ Bytes []byte }

// Message appends a field whose value is the output of write. If write returns an error, Message appends nothing and
// returns the error.
func (w *Writer) Message(number protowire.Number, write func() error) error {
	before := len(w.Bytes)
	// most messages need one byte for their length
	w.Bytes = append(protowire.AppendTag(w.Bytes, number, protowire.BytesType), 0)
	from := len(w.Bytes)
	if err := write(); err != nil {
		w.Bytes = w.Bytes[:before]
		return err
	}
	size := len(w.Bytes) - from
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 {
		w.Bytes = slices.Insert(w.Bytes, from, make([]byte, more)...)
	}
	protowire.AppendVarint(w.Bytes[:from-1], uint64(size))
	return nil
}

// Text appends a field of type string or bytes.
func (w *Writer) Text(number protowire.Number, text []byte) {
	w.Bytes = protowire.AppendBytes(protowire.AppendTag(w.Bytes, number, protowire.BytesType), text)
}

// Varint appends a field whose type is encoded as a varint: an integer, an enumeration or a bool.
func (w *Writer) Varint(number protowire.Number, v uint64) {
	w.Bytes = protowire.AppendVarint(protowire.AppendTag(w.Bytes, number, protowire.VarintType), v)
}

// Fixed64 appends a field of type fixed64, such as a time, or a double given as its bits.
func (w *Writer) Fixed64(number protowire.Number, v uint64) {
	w.Bytes = protowire.AppendFixed64(protowire.AppendTag(w.Bytes, number, protowire.Fixed64Type), v)
}

// Fixed32 appends a field of type fixed32.
func (w *Writer) Fixed32(number protowire.Number, v uint32) {
	w.Bytes = protowire.AppendFixed32(protowire.AppendTag(w.Bytes, number, protowire.Fixed32Type), v)
}
