package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Backup writes a consistent copy of the store to the new directory dir, with hard links where possible. Writes
// continue during the backup.
func (s *Store) Backup(dir string) error {
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("back up the store: %w", err)
	}
	return nil
}

// Oldest returns the number of the first journal record that the last checkpoint needs, or 0 if there is no checkpoint.
func (s *Store) Oldest() (uint64, error) {
	h, err := s.head()
	return h.oldest, err
}
