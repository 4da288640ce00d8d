package store

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Located is the evidence for the located place of a problem or an incident. Package api defines the encoding of
// Evidence, which is opaque to the store.
type Located struct {
	Of       search.Subject
	At       trace.Nanos // end of the epoch when it was located
	Evidence []byte
}

// MaxLocated is the maximum number of places whose evidence is kept, not counting the problems and incidents passed to
// [Places.Trim].
const MaxLocated = 2000

// Places keeps the evidence of located places, by problem or incident.
type Places struct{ db database }

func locatedKey(of search.Subject) []byte { return subjectKey(keyLocated, of) }

// Put stores x, replacing earlier evidence for the same problem or incident. The evidence becomes durable with the next
// checkpoint.
func (p Places) Put(x *Located) error {
	value := binary.BigEndian.AppendUint64(nil, uint64(max(0, x.At)))
	err := p.db.Set(locatedKey(x.Of), append(value, s2.Encode(nil, x.Evidence)...), pebble.NoSync)
	return during("store the evidence of a place", err)
}

// Get returns the evidence for the problem or incident `of`, or nil if it is not kept.
func (p Places) Get(of search.Subject) (*Located, error) {
	value, err := p.db.get(locatedKey(of))
	if err != nil || value == nil {
		return nil, err
	}
	x := &Located{Of: of}
	if x.At, err = locatedAt(value); err != nil {
		return nil, err
	}
	x.Evidence, err = decompress(value[8:])
	return x, err
}

// locatedAt returns the time at the start of value, or an error if value is too short.
func locatedAt(value []byte) (trace.Nanos, error) {
	if len(value) < 8 {
		return 0, fmt.Errorf("%w: evidence of a place of %d bytes", codec.ErrCorrupt, len(value))
	}
	return trace.Nanos(binary.BigEndian.Uint64(value)), nil
}

// Trim deletes evidence from before the given time, and the oldest evidence beyond [MaxLocated], but keeps the evidence
// for the problems and incidents in held.
func (p Places) Trim(before trace.Nanos, held map[search.Subject]bool) error {
	var all []Located
	err := p.db.each([]byte{keyLocated}, func(key, value []byte) error {
		if len(key) != subjectKeySize {
			return fmt.Errorf("%w: key of the evidence of a place of %d bytes", codec.ErrCorrupt, len(key))
		}
		of := subjectOf(key)
		at, err := locatedAt(value)
		if !held[of] {
			all = append(all, Located{Of: of, At: at})
		}
		return err
	})
	if err != nil {
		return err
	}
	sorting.SliceStable(all, func(a, b Located) int { // newest first
		return cmp.Or(cmp.Compare(b.At, a.At), a.Of.Compare(b.Of))
	})
	for i := range all {
		if i < MaxLocated && all[i].At >= before {
			continue
		}
		if err := p.db.Delete(locatedKey(all[i].Of), pebble.NoSync); err != nil {
			return fmt.Errorf("delete the evidence of a place: %w", err)
		}
	}
	return nil
}
