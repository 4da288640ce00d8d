// Package symbols names the functions at addresses in running processes. It uses the symbol tables of ELF files, the
// line tables of Go programs, and the perf maps written by just-in-time compilers.
//
// Files and memory maps belong to the observed processes, so their content may be hostile: sizes are limited, and files
// that cannot be parsed yield no names.
package symbols

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Limits on the cached names.
const (
	maxFiles     = 256
	maxProcesses = 1024
	maxMappings  = 1 << 16
	maxMemory    = 256 << 20 // of the names of all files and processes, in bytes
)

// Resolver returns the names of functions by address. It caches symbol tables by file. It is not safe for concurrent
// use.
type Resolver struct {
	proc      string // where the proc file system is mounted
	now       func() time.Time
	files     map[fileID]*reading
	processes map[uint32]*process
	late      bool // the last call of Names needed a table that has not been read yet
	inspector untrusted.Inspector
}

// reading is a table of names that is being read or has been read.
type reading struct {
	table  *table                    // may be nil
	answer *untrusted.Answer[*table] // nil if the table has been read or cannot be read
	stale  bool                      // read again when needed
}

// fileID identifies the file of a mapping.
type fileID struct {
	device string
	inode  uint64
}

// process holds the executable mappings of a process, ascending.
type process struct {
	identity untrusted.Identity
	mappings []mapping
	read     time.Time
	answer   *untrusted.Answer[[]mapping] // of a reading of the mappings in progress; may be nil
	perf     *reading                     // of the perf map; nil until read
}

// mapping is an executable part of a process's memory.
type mapping struct {
	start, end, offset uint64
	file               fileID
	path               string // "" or in brackets if the mapping has no file
}

// NewResolver returns a resolver for the proc file system mounted at proc.
func NewResolver(proc string, now func() time.Time) *Resolver {
	return &Resolver{proc: proc, now: now, files: make(map[fileID]*reading), processes: make(map[uint32]*process)}
}

// reread is the minimum age at which mappings and perf maps are read again if an address is not found. It is added once
// more for each MB of names in the perf map, because a large perf map takes long to read.
const reread = time.Second

// Names returns the names of the functions at return addresses in a process. If an address has no name, Names uses the
// name of its file. The names end before the first address that is not code, because code compiled without frame
// pointers leaves arbitrary values behind. final is false if some symbols have not been read yet, so that a later call
// may return better names.
func (r *Resolver) Names(pid uint32, addresses []uint64) (names []string, final bool) {
	p := r.process(pid)
	names, r.late = make([]string, 0, len(addresses)), false
	for i, a := range addresses {
		if i > 0 {
			a-- // a return address may already belong to the next function
		}
		name, ok := r.name(pid, p, a)
		if !ok && r.now().Sub(p.read) >= reread+time.Duration(p.perf.size()>>20)*reread {
			r.readProcess(pid, p)
			name, _ = r.name(pid, p, a)
		}
		if i > 0 && len(p.mappings) > 0 && p.mapping(a) == nil {
			break
		}
		names = append(names, untrusted.Name(name))
	}
	return names, p.answer == nil && !r.late
}

// Forget removes the cached symbols of a process that has ended.
func (r *Resolver) Forget(pid uint32) { delete(r.processes, pid) }

func (r *Resolver) process(pid uint32) *process {
	p, ok := r.processes[pid]
	if !ok {
		if len(r.processes) >= maxProcesses {
			clear(r.processes)
		}
		p = &process{}
		r.processes[pid] = p
		r.readProcess(pid, p)
	}
	p.settle()
	return p
}

// Know starts reading the mappings of a process, so that its addresses can be named even if it exits soon.
func (r *Resolver) Know(pid uint32) { r.process(pid) }

// Renew forgets a process if it now runs another program, and reports whether it does.
func (r *Resolver) Renew(pid uint32) bool {
	id, err := untrusted.Identify(r.proc, pid)
	if p := r.processes[pid]; err != nil || p == nil || p.identity == id {
		return false
	}
	r.Forget(pid)
	return true
}

// readProcess starts reading the mappings of a process, unless that is already in progress, and marks the perf map as
// stale.
func (r *Resolver) readProcess(pid uint32, p *process) {
	if p.answer != nil {
		return
	}
	p.read = r.now()
	p.identity, _ = untrusted.Identify(r.proc, pid)
	name := r.path(pid, "maps")
	p.answer = untrusted.Inspect(&r.inspector, func() []mapping {
		f, err := os.Open(name)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }() // read only
		return parseMappings(f)
	})
	p.settle()
}

func (r *Resolver) path(pid uint32, name string) string {
	return filepath.Join(r.proc, strconv.FormatUint(uint64(pid), 10), name)
}

// name returns the best available name of an address. ok is false if there may be a better name once the mappings or
// the perf map have been read again.
func (r *Resolver) name(pid uint32, p *process, address uint64) (name string, ok bool) {
	m := p.mapping(address)
	if m == nil {
		return fmt.Sprintf("0x%x", address), false
	}
	if strings.HasPrefix(m.path, "/") && !strings.HasPrefix(m.path, "/memfd:") {
		offset := address - m.start + m.offset
		if name, ok := r.tableOf(pid, m).atOffset(offset); ok {
			return name, true
		}
		return fmt.Sprintf("%s+0x%x", path.Base(strings.TrimSuffix(m.path, " (deleted)")), offset), true
	}
	if name, ok := r.perfOf(pid, p).at(address); ok {
		return name, true
	}
	if m.path != "" {
		return m.path, m.path[0] == '[' // [vdso]
	}
	return fmt.Sprintf("0x%x", address), false
}

// mapping returns the executable mapping that contains address, or nil if no mapping does.
func (p *process) mapping(address uint64) *mapping {
	i, found := slices.BinarySearchFunc(p.mappings, address, func(m mapping, a uint64) int {
		return cmp.Compare(m.start, a)
	})
	if !found {
		i--
	}
	if i < 0 || address >= p.mappings[i].end {
		return nil
	}
	return &p.mappings[i]
}

// settle replaces the mappings if a reading has finished. It keeps the old mappings if the new ones are empty, because
// the process has then ended.
func (p *process) settle() {
	if p.answer == nil {
		return
	}
	mappings, ok := p.answer.Take()
	if !ok {
		return
	}
	p.answer = nil
	if len(mappings) > 0 {
		p.mappings = mappings
		if p.perf != nil {
			p.perf.stale = true
		}
	}
}

// tableOf returns the symbols of the file that is mapped by m. They are empty until the file has been read.
func (r *Resolver) tableOf(pid uint32, m *mapping) *table {
	f, ok := r.files[m.file]
	if !ok {
		if len(r.files) >= maxFiles {
			clear(r.files)
		}
		mapped, root, name := r.path(pid, fmt.Sprintf("map_files/%x-%x", m.start, m.end)), r.path(pid, "root"), m.path
		if f = r.begin(func() *table { return readTable(mapped, root, name) }); f != nil {
			r.files[m.file] = f
		}
	}
	return r.settle(f)
}

// perfOf returns the names that a just-in-time compiler has written for a process. They are empty until the perf map
// has been read.
func (r *Resolver) perfOf(pid uint32, p *process) *table {
	if p.perf == nil || p.perf.stale && p.perf.answer == nil {
		folder := r.path(pid, "")
		p.perf = r.begin(func() *table { return readPerfMap(folder, pid) })
	}
	return r.settle(p.perf)
}

// begin starts reading a table. It returns nil if too many earlier readings have not finished yet.
func (r *Resolver) begin(read func() *table) *reading {
	if a := untrusted.Inspect(&r.inspector, read); a != nil {
		return &reading{answer: a}
	}
	return nil
}

// settle returns the table of f, which is empty until it has been read. It empties the caches if they exceed maxMemory.
func (r *Resolver) settle(f *reading) *table {
	if f == nil {
		return &table{}
	}
	if f.answer != nil {
		t, ok := f.answer.Take()
		if !ok {
			r.late = true
			return &table{}
		}
		f.answer, f.table = nil, t
		if r.memory() > maxMemory {
			clear(r.files)
			clear(r.processes)
		}
	}
	return f.table
}

// memory returns the size of all tables, in bytes.
func (r *Resolver) memory() (n int) {
	for _, f := range r.files {
		n += f.size()
	}
	for _, p := range r.processes {
		n += p.perf.size()
	}
	return n
}

func (f *reading) size() int {
	if f == nil || f.table == nil {
		return 0
	}
	return f.table.size
}

// readTable reads the symbols of a mapped file. It opens the file through the mapping, which also works for deleted
// files, or otherwise by the name that the process uses. The table is empty if neither works.
func readTable(mapped, root, name string) *table {
	f, err := untrusted.Open(mapped)
	if err != nil {
		f, err = untrusted.OpenIn(root, name)
	}
	if err != nil {
		return &table{}
	}
	defer func() { _ = f.Close() }() // read only
	return readELF(f)
}

// parseMappings returns the executable mappings in text, a file /proc/PID/maps, ascending by address.
func parseMappings(text io.Reader) []mapping {
	var all []mapping
	for line := range lines(text) {
		// 55e0c4a00000-55e0c4a21000 r-xp 00002000 fe:01 1234 /usr/bin/name
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		offset, err3 := strconv.ParseUint(fields[2], 16, 64)
		inode, err4 := strconv.ParseUint(fields[4], 10, 64)
		if cmp.Or(err1, err2, err3, err4) != nil || len(all) >= maxMappings {
			continue
		}
		m := mapping{start: start, end: end, offset: offset, file: fileID{fields[3], inode}}
		if len(fields) > 5 {
			m.path = line[strings.Index(line, fields[5]):]
		}
		all = append(all, m)
	}
	sorting.Slice(all, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	return all
}
