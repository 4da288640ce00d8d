// Package jsonwalk reads JSON records for the decoders of ingest: objects and arrays are walked field by field, and an error says
// where in the record it happened. It decides nothing about the fields.
package jsonwalk

import (
	"errors"
	"io"
	"slices"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

var (
	errTrailing = errors.New("bytes after the end of the document")
	errDepth    = errors.New("nested more than 10000 deep")
)

// tooDeep is the message of jx's error, which it does not export, for what is nested too deep.
const tooDeep = "depth: maximum"

// Walker reads one record at a time and keeps its buffers in between. The zero Walker is ready to use.
type Walker struct {
	json    jx.Decoder
	data    []byte
	lastKey []byte // the field name read last
}

// Record lets read read the record in data, behind which only white space may follow. It returns an *[ingest.RecordError] with
// the position of the field name before the error.
func (w *Walker) Record(data []byte, read func(*jx.Decoder) error) error {
	w.data = slices.Clip(data)
	w.json.ResetBytes(w.data)
	err := read(&w.json)
	if err == nil && !errors.Is(w.json.Skip(), io.EOF) {
		err = errTrailing
	}
	if err != nil {
		err = w.failure(err)
	}
	w.json.ResetBytes(nil)
	w.data, w.lastKey = nil, nil
	return err
}

// failure takes the cause out of err, which has a layer for each level of nesting.
func (w *Walker) failure(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	failed := &ingest.RecordError{Reason: trace.Malformed, Offset: w.position(), Err: err}
	if err.Error() == tooDeep {
		failed.Reason, failed.Err = trace.TooLarge, errDepth
	}
	return failed
}

// position returns the offset of the key read last, −1 if it is not known.
func (w *Walker) position() int64 {
	// A key without escapes is a part of w.data, and all parts share the end of their capacity.
	at := cap(w.data) - cap(w.lastKey)
	if len(w.lastKey) == 0 || at < 0 || &w.data[at] != &w.lastKey[0] {
		return -1
	}
	return int64(at)
}

// Fields calls f for each field of the object that follows; null has none. f must consume the value. The key is valid as long as
// the record.
func (w *Walker) Fields(j *jx.Decoder, f func(key []byte) error) error {
	if j.Next() == jx.Null {
		return j.Null()
	}
	it, err := j.ObjIter()
	if err != nil {
		return err
	}
	for it.Next() {
		w.lastKey = it.Key()
		if err := f(w.lastKey); err != nil {
			return err
		}
	}
	return it.Err()
}

// Elements calls f for each element of the array that follows; null has none. f must consume the element.
func Elements(j *jx.Decoder, f func(*jx.Decoder) error) error {
	if j.Next() == jx.Null {
		return j.Null()
	}
	it, err := j.ArrIter()
	if err != nil {
		return err
	}
	for it.Next() {
		if err := f(j); err != nil {
			return err
		}
	}
	return it.Err()
}

// Text reads a string; null is the empty one. The result is valid as long as the record.
func Text(j *jx.Decoder) ([]byte, error) {
	if j.Next() == jx.Null {
		return nil, j.Null()
	}
	return j.StrBytes()
}
