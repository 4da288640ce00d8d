package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
)

// Selection selects processes. Exactly one field is set.
type Selection struct {
	PIDs   []uint32
	Comm   string // name of the program; only 15 bytes count, because the kernel keeps no more
	Cgroup string // a folder of cgroups, or the path below the mount

	starts map[uint32]uint64 // start times of PIDs when checked, because PIDs are reused
}

// maxComm is the number of bytes of a program's name that the kernel keeps.
const maxComm = 15

// cgroupMounts lists the folders where cgroups may be mounted. The empty string is for absolute paths.
var cgroupMounts = []string{"", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// Check returns an error if a selected cgroup or process does not exist. It also fixes the meaning of selected process
// IDs: a later process with the same ID is not selected.
func (s *Selection) Check() error { return s.checkIn("/proc") }

func (s *Selection) checkIn(proc string) error {
	s.starts = make(map[uint32]uint64, len(s.PIDs))
	for _, pid := range s.PIDs {
		id, err := untrusted.Identify(proc, pid)
		if err != nil || !isProcess(proc, pid) {
			return fmt.Errorf("there is no process %d: it has ended, or the number is that of a thread", pid)
		}
		s.starts[pid] = id.StartNs
	}
	if s.Cgroup != "" && cgroupFolder(s.Cgroup) == "" {
		return fmt.Errorf("there is no cgroup %s", s.Cgroup)
	}
	return nil
}

// Find returns the selected processes that are running, in ascending order. A cgroup that has been removed counts as
// empty, because services remove their cgroups when they end.
func (s *Selection) Find() ([]uint32, error) { return s.findIn("/proc") }

func (s *Selection) findIn(proc string) (found []uint32, err error) {
	switch {
	case s.Comm != "":
		found, err = findComm(proc, s.Comm)
	case s.Cgroup != "":
		if folder := cgroupFolder(s.Cgroup); folder != "" {
			found, err = processesIn(folder)
		}
	default:
		found = slices.DeleteFunc(slices.Clone(s.PIDs), func(pid uint32) bool { return !s.runs(proc, pid) })
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// runs reports whether the selected process with ID pid is still running. A later process with the same ID doesn't
// count.
func (s *Selection) runs(proc string, pid uint32) bool {
	if start, checked := s.starts[pid]; checked {
		if id, err := untrusted.Identify(proc, pid); err != nil || id.StartNs != start {
			return false
		}
	}
	return isProcess(proc, pid)
}

// children reports whether processes started by selected processes are selected, too.
func (s *Selection) children() bool { return s.Comm != "" || s.Cgroup != "" }

// String describes the selection.
func (s *Selection) String() string {
	switch {
	case s.Comm != "":
		if len(s.Comm) > maxComm {
			return fmt.Sprintf("process named %s (the kernel keeps %d bytes of a name)", s.Comm[:maxComm], maxComm)
		}
		return "process named " + s.Comm
	case s.Cgroup != "":
		return "process in cgroup " + s.Cgroup
	}
	texts := make([]string, len(s.PIDs))
	for i, pid := range s.PIDs {
		texts[i] = strconv.FormatUint(uint64(pid), 10)
	}
	return "process " + strings.Join(texts, ", ")
}

// isProcess reports whether pid is a running process and not just a thread.
func isProcess(proc string, pid uint32) bool {
	id := strconv.FormatUint(uint64(pid), 10)
	text, err := os.ReadFile(filepath.Join(proc, id, "status"))
	return err == nil && strings.Contains(string(text), "\nTgid:\t"+id+"\n") &&
		!strings.Contains(string(text), "\nState:\tZ")
}

func findComm(proc, comm string) ([]uint32, error) {
	if len(comm) > maxComm {
		comm = comm[:maxComm]
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []uint32
	for _, e := range entries {
		pid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err == nil && strings.TrimSuffix(string(name), "\n") == comm {
			found = append(found, uint32(pid))
		}
	}
	return found, nil
}

// cgroupFolder returns the folder of a cgroup, or "" if it doesn't exist.
func cgroupFolder(name string) string {
	for _, mount := range cgroupMounts {
		folder := filepath.Join(mount, name)
		if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err == nil {
			return folder
		}
	}
	return ""
}

// removed reports whether an error means that a cgroup has been removed, before or after it was opened.
func removed(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// processesIn returns the processes of a cgroup and of the cgroups below it.
func processesIn(folder string) ([]uint32, error) {
	var found []uint32
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if removed(err) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(name, "cgroup.procs"))
		if removed(err) {
			return nil
		}
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32); err == nil && pid > 0 {
				found = append(found, uint32(pid))
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of a cgroup: %w", err)
	}
	return found, nil
}
