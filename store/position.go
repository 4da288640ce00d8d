package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// SavePosition stores through, the time up to which source has been read.
func (s *Store) SavePosition(source string, through time.Time) error {
	value, err := through.MarshalBinary()
	if err == nil {
		err = s.db.Set(append([]byte{keyPositions}, source...), value, pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("store the position in %s: %w", source, err)
	}
	return nil
}

// Position returns the time stored by SavePosition for source, or the zero time if there is none.
func (s *Store) Position(source string) (through time.Time, err error) {
	value, err := s.get(append([]byte{keyPositions}, source...))
	if err != nil || value == nil {
		return time.Time{}, err
	}
	if err := through.UnmarshalBinary(value); err != nil {
		return time.Time{}, fmt.Errorf("position in %s: %w: %w", source, codec.ErrCorrupt, err)
	}
	return through, nil
}
