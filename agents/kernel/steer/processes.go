package steer

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
)

const (
	// forgetScans is the number of scans (ten minutes) that a service without processes is still announced, because
	// services restart.
	forgetScans = 600
	// maxServices is the maximum number of announced services. It is needed because a program could keep starting
	// processes with new service names.
	maxServices = 256
)

// processes holds the processes of services on this machine. It is not safe for concurrent use.
type processes struct {
	proc       string // mount of the proc file system
	own        uint32 // ID of the agent, which does not observe itself
	selection  kernel.Selection
	everything bool
	serviceOf  func(pid uint32) *join.Service // may return nil

	all      map[uint32]*join.Service // by process ID, as of the last scan
	services map[string]int           // number of the latest scan that found a process, by service
	scans    int
	dropped  map[string]bool // services in the last scan that exceed maxServices
}

// scan looks for processes that have started, ended or changed, and reports whether the services have changed.
func (p *processes) scan() (changed bool, err error) {
	found, err := p.find()
	if err != nil {
		return false, err
	}
	p.scans++
	clear(p.all)
	p.dropped = make(map[string]bool)
	for _, pid := range found {
		if pid == p.own {
			continue
		}
		s := p.serviceOf(pid)
		if s == nil || !validService(s.Name) {
			continue
		}
		_, known := p.services[s.Name]
		if known || len(p.services) < maxServices {
			p.all[pid], p.services[s.Name], changed = s, p.scans, changed || !known
		} else {
			p.dropped[s.Name] = true
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

// serviceNames returns the announced services, ascending.
func (p *processes) serviceNames() []string { return slices.Sorted(maps.Keys(p.services)) }

// ofServices returns the processes of services, ascending.
func (p *processes) ofServices() []uint32 { return slices.Sorted(maps.Keys(p.all)) }
