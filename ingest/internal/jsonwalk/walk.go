// Package jsonwalk reads JSON records for the decoders of package ingest. It walks objects and arrays field by field
// and adds the position to errors. It does not interpret fields.
package jsonwalk

import (
	"errors"
	"io"
	"math"
	"slices"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

var (
	errTrailing = errors.New("bytes after the end of the document")
	errDepth    = errors.New("nested more than 10000 deep")
	errNoValue  = errors.New("the value is not valid in JSON")
)

// tooDeep is the message of jx's unexported error for excessive nesting.
const tooDeep = "depth: maximum"

// noValue is the message of jx's error for a value that isn't valid in JSON, such as NaN.
const noValue = "unexpected invalid"

// Walker reads one record at a time. It reuses its buffers for the next record. The zero Walker is ready to use.
type Walker struct {
	// Limited applies [ingest.MaxRecords] to the total of the elements of all lists in a record and the fields counted
	// by [Walker.Count].
	Limited bool

	json    jx.Decoder
	data    []byte
	lastKey []byte // the last field name read
	left    int    // number of further elements that the record may have
}

// Record calls read with a decoder for data. Only white space may follow the value that read consumes. The error is an
// *[ingest.RecordError] with the position of the last field name before the error.
func (w *Walker) Record(data []byte, read func(*jx.Decoder) error) error {
	w.data = slices.Clip(data)
	w.json.ResetBytes(w.data)
	w.left = math.MaxInt
	if w.Limited {
		w.left = ingest.MaxRecords(len(data), ingest.MinRecordJSON)
	}
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

// failure returns a RecordError with the innermost cause of err, because jx wraps errors once per level of nesting.
func (w *Walker) failure(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	failed := &ingest.RecordError{Reason: trace.Malformed, Offset: w.position(), Err: err}
	switch {
	case errors.Is(err, ingest.ErrRecords):
		failed.Reason = trace.TooLarge
	case err.Error() == tooDeep:
		failed.Reason, failed.Err = trace.TooLarge, errDepth
	case err.Error() == noValue:
		failed.Err = errNoValue
	}
	return failed
}

// position returns the offset of the last key read, or −1 if it is unknown.
func (w *Walker) position() int64 {
	// A key without escapes is a subslice of w.data, and all subslices have the same end of capacity.
	at := cap(w.data) - cap(w.lastKey)
	if len(w.lastKey) == 0 || at < 0 || &w.data[at] != &w.lastKey[0] {
		return -1
	}
	return int64(at)
}

// Fields calls f for each field of the object that follows, which may be null. f must consume the value. The key is
// valid until the next record.
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

// Elements calls f for each element of the array that follows, which may be null. f must consume the element.
func (w *Walker) Elements(j *jx.Decoder, f func(*jx.Decoder) error) error {
	if j.Next() == jx.Null {
		return j.Null()
	}
	it, err := j.ArrIter()
	if err != nil {
		return err
	}
	for it.Next() {
		if err := w.Count(); err != nil {
			return err
		}
		if err := f(j); err != nil {
			return err
		}
	}
	return it.Err()
}

// Count counts a field as if it were an element of a list. Call it for objects that may have any number of fields. It
// returns an error if the record has too many elements.
func (w *Walker) Count() error {
	if w.left--; w.left < 0 {
		return ingest.ErrRecords
	}
	return nil
}

// Text reads a string. It returns nil for null. The result is valid until the next record.
func Text(j *jx.Decoder) ([]byte, error) {
	if j.Next() == jx.Null {
		return nil, j.Null()
	}
	return j.StrBytes()
}
