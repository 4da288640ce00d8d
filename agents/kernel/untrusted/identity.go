package untrusted

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Identity distinguishes the programs that have the same process ID one after the other. Reading it does not depend on
// the cooperation of the process.
type Identity struct {
	StartNs     uint64 // since boot
	environment string // its address, random for each start of a program; "0" without the right to read it
	Program     string // path; empty without the right to read it
}

// StartPrecisionNs is the precision of the kernel's start times of processes.
const StartPrecisionNs = 10_000_000

// Identify returns the identity of a process. proc is the mount point of the proc file system.
func Identify(proc string, pid uint32) (Identity, error) {
	folder := filepath.Join(proc, strconv.FormatUint(uint64(pid), 10))
	text, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}
	const startTime, environmentStart = 22 - 3, 50 - 3 // the fields after the name start with the third
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	fields := strings.Fields(rest)
	if len(fields) <= startTime {
		return Identity{}, fmt.Errorf("read the start of process %d: %q", pid, text)
	}
	ticks, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return Identity{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}
	id := Identity{StartNs: ticks * StartPrecisionNs}
	if len(fields) > environmentStart {
		id.environment = fields[environmentStart]
	}
	id.Program, _ = os.Readlink(filepath.Join(folder, "exe")) // only the path, as the file itself may not answer
	return id, nil
}
