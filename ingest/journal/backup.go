package journal

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Backup writes a consistent copy of the journal to dir, a new directory, with hard links where possible. The copy
// contains all records appended before the call. Backup returns a lower bound on the number of the copy's first record;
// see [Journal.First]. Appends continue during the backup, but Trim waits.
func (j *Journal) Backup(dir string) (first uint64, err error) {
	j.trims.Lock()
	defer j.trims.Unlock()
	if err := j.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return 0, fmt.Errorf("back up the journal: %w", err)
	}
	return j.First(), nil
}
