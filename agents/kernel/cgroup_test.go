//go:build linux

package kernel

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// enter moves process pid to cgroup.
func enter(t *testing.T, cgroup string, pid uint32) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(int(pid))), 0o600); err != nil {
		t.Skip("the cgroups of this machine cannot be changed: ", err)
	}
}

// newCgroup returns a new cgroup with one below it. Both are removed at the end.
func newCgroup(t *testing.T) string {
	t.Helper()
	for _, mount := range cgroupMounts[1:] {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		cgroup, err := os.MkdirTemp(mount, "sibyl-test-") //nolint:usetesting // it must be there
		if err != nil {
			t.Skip("the cgroups of this machine cannot be changed: ", err)
		}
		below := filepath.Join(cgroup, "below")
		t.Cleanup(func() { _ = os.Remove(cgroup) })
		if err := os.Mkdir(below, 0o700); err != nil {
			t.Skip("the cgroups of this machine cannot be changed: ", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(below); err != nil {
				t.Error(err)
			}
		})
		return cgroup
	}
	t.Skip("this machine has no unified cgroups")
	return ""
}

// A cgroup selects the processes of the cgroups below it, but no others.
func TestCgroup(t *testing.T) {
	cgroup := newCgroup(t)
	r := finish(t, "storm", Settings{Selection: Selection{Cgroup: cgroup}})
	all, _ := totals(r)
	if len(r.Processes) != 1 || all[waits.Pipe].Count < 1000 {
		t.Errorf("%d processes, %d waits for pipes", len(r.Processes), all[waits.Pipe].Count)
	}
	s := Selection{Cgroup: filepath.Base(cgroup)}
	if found, err := s.Find(); err != nil || len(found) != 1 {
		t.Errorf("%s has the processes %v, %v; want one", &s, found, err)
	}
}
