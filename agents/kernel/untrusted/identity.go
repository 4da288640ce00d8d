package untrusted

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Identity distinguishes programs that use a process ID one after the other, without asking the process.
type Identity struct {
	StartNs     uint64 // since boot
	environment string // its address, which is chosen at random when a program starts; "0" without the right to read it
	Program     string // path; empty without the right to read it
}

// StartPrecisionNs is the precision of the kernel's start times of processes.
const StartPrecisionNs = 10_000_000

// Identify returns the identity of a process below proc.
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
