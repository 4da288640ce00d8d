package kernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A cgroup may disappear and return while its processes are observed, but must exist at the start.
func TestCgroupGoes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "service")
	s := Selection{Cgroup: folder}
	if err := s.Check(); err == nil {
		t.Error("there is no such cgroup")
	}
	for _, inner := range []string{"", "worker"} {
		if err := os.MkdirAll(filepath.Join(folder, inner), 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("1%d\n", len(inner))
		if err := os.WriteFile(filepath.Join(folder, inner, "cgroup.procs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Find(); err != nil || s.Check() != nil || !slices.Equal(found, []uint32{10, 16}) {
		t.Errorf("%v, %v", found, err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Find(); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := processesIn(folder); err != nil || len(found) != 0 {
		t.Errorf("removed meanwhile: %v, %v", found, err)
	}
	for err, want := range map[error]bool{unix.ENODEV: true, fs.ErrNotExist: true, unix.EIO: false} {
		if got := removed(&fs.PathError{Op: "read", Path: "cgroup.procs", Err: err}); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// A process that doesn't exist is an error, even if others are selected.
func TestMissingProcess(t *testing.T) {
	own := uint32(os.Getpid())
	if err := (&Selection{PIDs: []uint32{own}}).Check(); err != nil {
		t.Error(err)
	}
	if err := (&Selection{PIDs: []uint32{own, 1 << 31}}).Check(); err == nil {
		t.Error("no error about a missing process")
	}
}
