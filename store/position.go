package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Positions keeps, for each source, the time up to which it has been read.
type Positions struct{ db database }

func positionKey(source string) []byte { return append([]byte{keyPositions}, source...) }

// Save stores through, the time up to which source has been read.
func (p Positions) Save(source string, through time.Time) error {
	value, err := through.MarshalBinary()
	if err == nil {
		err = p.db.Set(positionKey(source), value, pebble.Sync)
	}
	return during("store the position in "+source, err)
}

// Load returns the time saved for source, or the zero time if no time has been saved.
func (p Positions) Load(source string) (through time.Time, err error) {
	value, err := p.db.get(positionKey(source))
	if err != nil || value == nil {
		return time.Time{}, err
	}
	if err := through.UnmarshalBinary(value); err != nil {
		return time.Time{}, fmt.Errorf("position in %s: %w: %w", source, codec.ErrCorrupt, err)
	}
	return through, nil
}
