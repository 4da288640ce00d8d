//go:build amd64 || arm64

package kernel

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// cpuMounts lists the folders where the cgroups with CPU limits may be mounted: of version 1 and of version 2.
var cpuMounts = []string{"cpu", "cpu,cpuacct", "", "unified"}

// throttling reads how often the CPU limits of cgroups stopped their threads.
type throttling struct {
	proc, cgroups string                    // folders; /proc and /sys/fs/cgroup
	known         map[uint32]bool           // processes
	before        map[string]waits.Throttle // by folder of the cgroup
}

func newThrottling(proc, cgroups string) *throttling {
	return &throttling{proc, cgroups, make(map[uint32]bool), make(map[string]waits.Throttle)}
}

// add includes the cgroups of a process from now on, with all cgroups above, because each may have a limit.
func (t *throttling) add(pid uint32) {
	if t.known[pid] {
		return
	}
	t.known[pid] = true
	text, err := os.ReadFile(filepath.Join(t.proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		return // it has ended
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || fields[1] != "" && !slices.Contains(strings.Split(fields[1], ","), "cpu") {
			continue
		}
		for name := filepath.Clean("/" + fields[2]); ; name = filepath.Dir(name) {
			for _, mount := range cpuMounts {
				folder := filepath.Join(t.cgroups, mount, name)
				if _, seen := t.before[folder]; seen {
					continue
				}
				if now, ok := throttled(folder); ok {
					now.Cgroup = name
					t.before[folder] = now
				}
			}
			if name == "/" {
				break
			}
		}
	}
}

// since returns the cgroups that were stopped since the last call, longest first.
func (t *throttling) since() (all []waits.Throttle) {
	for folder, before := range t.before {
		now, ok := throttled(folder)
		if !ok {
			delete(t.before, folder) // the cgroup has been removed
			continue
		}
		now.Cgroup = before.Cgroup
		t.before[folder] = now
		if now.Stopped > before.Stopped {
			now.Periods, now.Stopped, now.Ns = now.Periods-before.Periods, now.Stopped-before.Stopped, now.Ns-before.Ns
			all = append(all, now)
		}
	}
	slices.SortFunc(all, func(a, b waits.Throttle) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	return all
}

// throttled reads the statistics of a cgroup. ok is false if it has none.
func throttled(folder string) (x waits.Throttle, ok bool) {
	text, err := os.ReadFile(filepath.Join(folder, "cpu.stat"))
	if err != nil {
		return x, false
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "nr_periods":
			x.Periods, ok = n, true
		case "nr_throttled":
			x.Stopped = n
		case "throttled_time": // version 1
			x.Ns = n
		case "throttled_usec": // version 2
			x.Ns = 1000 * n
		}
	}
	return x, ok
}
