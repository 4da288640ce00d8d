package datafile

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// The error for a full disk says so. Other errors aren't shown to clients.
func TestNotStored(t *testing.T) {
	for cause, full := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EACCES: false} {
		err := notStored(&os.PathError{Op: "write", Path: "notes.json", Err: cause})
		if refused, ok := errors.AsType[*refusal.Error](err); ok != full ||
			full && (refused.Detail != "the disk is full" || refused.After == 0) {
			t.Errorf("%v: got %v", cause, err)
		}
	}
}
