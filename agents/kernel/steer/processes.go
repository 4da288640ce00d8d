package steer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
)

const (
	// maxTargets is the number of processes that the probes observe at a time.
	maxTargets = 4096
	// latestRead is the longest time, in scans, between two readings of the resource of a process: an SDK publishes it
	// when it starts, and a process may become another program.
	latestRead = 128
	// forgetScans is the number of scans for which a service without processes is still announced, since services
	// restart: ten minutes.
	forgetScans = 600
)

// processes are the processes of services on this machine. One goroutine owns them.
type processes struct {
	proc       string // mount of the proc file system
	own        uint32 // ID of the agent, which does not observe itself
	host       string
	selection  kernel.Selection
	everything bool
	service    string // of processes that name none

	all      map[uint32]*process
	services map[string]int // the scan in which a service had a process last
	scans    int
}

// process is a process, whether it is observed or not.
type process struct {
	pid      uint32
	service  *join.Service // nil: not observed
	program  string        // see programOf
	nextRead int           // scan
	reads    int
}

// scan looks for processes that have begun, ended or changed, and reports whether the services have changed.
func (p *processes) scan() (changed bool, err error) {
	found, err := p.find()
	if err != nil {
		return false, err
	}
	p.scans++
	alive := make(map[uint32]bool, len(found))
	for _, pid := range found {
		if alive[pid] = pid != p.own; alive[pid] {
			p.update(pid)
		}
	}
	maps.DeleteFunc(p.all, func(pid uint32, _ *process) bool { return !alive[pid] })
	for _, x := range p.all {
		if x.service != nil {
			_, known := p.services[x.service.Name]
			p.services[x.service.Name], changed = p.scans, changed || !known
		}
	}
	maps.DeleteFunc(p.services, func(_ string, seen int) bool {
		gone := p.scans-seen > forgetScans
		changed = changed || gone
		return gone
	})
	return changed, nil
}

// find returns the IDs of selected processes.
func (p *processes) find() ([]uint32, error) {
	if !p.everything {
		return p.selection.Find()
	}
	entries, err := os.ReadDir(p.proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []uint32
	for _, e := range entries {
		if pid, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			found = append(found, uint32(pid))
		}
	}
	return found, nil
}

// update reads the resource of a process when it is due: soon after the start, then at growing intervals.
func (p *processes) update(pid uint32) {
	x := p.all[pid]
	if x != nil && x.service != nil && programOf(p.proc, pid) != x.program {
		x = nil
	}
	if x == nil {
		x = &process{pid: pid, program: programOf(p.proc, pid)}
		p.all[pid] = x
	}
	if p.scans < x.nextRead {
		return
	}
	x.nextRead = p.scans + min(1<<min(2*x.reads, 16), latestRead)
	x.reads++
	service, err := join.ReadService(p.proc, pid, p.service, p.host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.service = nil
	case err == nil && service != nil && validService(service.Name):
		x.service = service
	case err == nil:
		x.service = nil
	}
}

// programOf returns the time of the start of a process and its executable: they change when another process gets the
// ID, and when the process becomes another program. It returns "" if the process has ended.
func programOf(proc string, pid uint32) string {
	folder := filepath.Join(proc, strconv.FormatUint(uint64(pid), 10))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return ""
	}
	const start = 19 // after the name, which may contain anything
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start {
		return ""
	}
	executable, _ := os.Readlink(filepath.Join(folder, "exe")) // needs a right for processes of other users
	return string(fields[start]) + " " + executable
}

// serviceNames returns the announced services, ascending.
func (p *processes) serviceNames() []string { return slices.Sorted(maps.Keys(p.services)) }

// observed returns the processes of services, ascending by ID, at most [maxTargets].
func (p *processes) observed() []*process {
	var list []*process
	for _, pid := range slices.Sorted(maps.Keys(p.all)) {
		if x := p.all[pid]; x.service != nil && len(list) < maxTargets {
			list = append(list, x)
		}
	}
	return list
}
