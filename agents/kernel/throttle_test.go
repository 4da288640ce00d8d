//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// The limit of a cgroup, or of one above it, counts from when its process is observed. Both versions of cgroups have
// statistics.
func TestThrottling(t *testing.T) {
	proc, cgroups := t.TempDir(), t.TempDir()
	write := func(folder, name, text string) {
		t.Helper()
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(proc, "7"), "cgroup", "4:memory:/m\n3:cpu,cpuacct:/pods/a\n0::/../../unit\n")
	v1, v2 := filepath.Join(cgroups, "cpu", "pods"), filepath.Join(cgroups, "unit")
	write(v1, "cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n")
	write(v2, "cpu.stat", "usage_usec 9\nnr_periods 20\nnr_throttled 1\nthrottled_usec 6\n")
	limits := newThrottling(proc, cgroups)
	limits.add(7)
	if got := limits.since(); len(got) != 0 {
		t.Errorf("stopped before: %v", got)
	}
	write(v1, "cpu.stat", "nr_periods 20\nnr_throttled 13\nthrottled_time 905000\n")
	write(v2, "cpu.stat", "usage_usec 9\nnr_periods 22\nnr_throttled 2\nthrottled_usec 7\n")
	want := []waits.Throttle{
		{Cgroup: "/pods", Periods: 10, Stopped: 9, Ns: 900_000}, {Cgroup: "/unit", Periods: 2, Stopped: 1, Ns: 1000},
	}
	if d := cmp.Diff(want, limits.since()); d != "" {
		t.Error(d)
	}
	if err := os.Remove(filepath.Join(v1, "cpu.stat")); err != nil {
		t.Fatal(err)
	}
	if got := limits.since(); len(got) != 0 {
		t.Errorf("removed: %v", got)
	}
}
