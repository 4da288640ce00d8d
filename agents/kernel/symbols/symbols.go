// Package symbols names the functions at addresses in running processes: by the symbol tables of ELF files, the line
// tables of Go programs, and the perf maps that just-in-time compilers write.
//
// Files and memory maps belong to the processes observed, so their content is hostile: sizes are limited, and a file
// that cannot be parsed has no names.
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
)

// Limits of the cached names.
const (
	maxFiles     = 256
	maxProcesses = 1024
	maxMappings  = 1 << 16
)

// Resolver names addresses. It caches symbol tables by file. It is not safe for concurrent use.
type Resolver struct {
	proc      string // where the proc file system is mounted
	now       func() time.Time
	files     map[fileID]*table
	processes map[uint32]*process
}

// fileID identifies the file of a mapping.
type fileID struct {
	device string
	inode  uint64
}

// process holds the executable mappings of a process, ascending.
type process struct {
	mappings []mapping
	read     time.Time
	perf     *table // of the perf map; nil: not read yet
}

// mapping is an executable part of a process's memory.
type mapping struct {
	start, end, offset uint64
	file               fileID
	path               string // "" or in brackets: not of a file
}

// NewResolver returns a resolver for the proc file system mounted at proc.
func NewResolver(proc string, now func() time.Time) *Resolver {
	return &Resolver{proc: proc, now: now, files: make(map[fileID]*table), processes: make(map[uint32]*process)}
}

// reread is the age from which mappings and perf maps are read again when an address is not found.
const reread = time.Second

// Names returns the names of the functions at return addresses in a process. An address without a name gets that of
// its file.
func (r *Resolver) Names(pid uint32, addresses []uint64) []string {
	p := r.process(pid)
	names := make([]string, len(addresses))
	for i, a := range addresses {
		if i > 0 {
			a-- // a return address may be that of the next function
		}
		name, ok := r.name(pid, p, a)
		if !ok && r.now().Sub(p.read) >= reread {
			p = r.readProcess(pid)
			name, _ = r.name(pid, p, a)
		}
		names[i] = name
	}
	return names
}

// Forget removes the cached symbols of a process that has ended.
func (r *Resolver) Forget(pid uint32) { delete(r.processes, pid) }

func (r *Resolver) process(pid uint32) *process {
	if p, ok := r.processes[pid]; ok {
		return p
	}
	return r.readProcess(pid)
}

// Know reads the mappings of a process, so that its addresses have names even if it ends soon.
func (r *Resolver) Know(pid uint32) { r.process(pid) }

func (r *Resolver) readProcess(pid uint32) *process {
	if len(r.processes) >= maxProcesses {
		clear(r.processes)
	}
	p := &process{read: r.now()}
	if f, err := os.Open(r.path(pid, "maps")); err == nil {
		p.mappings = parseMappings(f)
		_ = f.Close() // read only
	}
	if old := r.processes[pid]; len(p.mappings) == 0 && old != nil {
		p.mappings, p.perf = old.mappings, old.perf // it has ended
	}
	r.processes[pid] = p
	return p
}

func (r *Resolver) path(pid uint32, name string) string {
	return filepath.Join(r.proc, strconv.FormatUint(uint64(pid), 10), name)
}

// name returns the name of an address; ok is false if it has none beyond that of its file.
func (r *Resolver) name(pid uint32, p *process, address uint64) (name string, ok bool) {
	i, found := slices.BinarySearchFunc(p.mappings, address, func(m mapping, a uint64) int { return cmp.Compare(m.start, a) })
	if !found {
		i--
	}
	if i < 0 || address >= p.mappings[i].end {
		return fmt.Sprintf("0x%x", address), false
	}
	m := &p.mappings[i]
	if strings.HasPrefix(m.path, "/") && !strings.HasPrefix(m.path, "/memfd:") {
		offset := address - m.start + m.offset
		if name, ok := r.table(pid, m).atOffset(offset); ok {
			return name, true
		}
		return fmt.Sprintf("%s+0x%x", path.Base(strings.TrimSuffix(m.path, " (deleted)")), offset), true
	}
	if p.perf == nil {
		p.perf = r.readPerfMap(pid)
	}
	if name, ok := p.perf.at(address); ok {
		return name, true
	}
	if m.path != "" {
		return m.path, m.path[0] == '[' // [vdso]
	}
	return fmt.Sprintf("0x%x", address), false
}

// table returns the symbols of the file behind a mapping.
func (r *Resolver) table(pid uint32, m *mapping) *table {
	if t, ok := r.files[m.file]; ok {
		return t
	}
	if len(r.files) >= maxFiles {
		clear(r.files)
	}
	t := r.readTable(pid, m)
	r.files[m.file] = t
	return t
}

// readTable reads the symbols of a mapped file: through the mapping, which also works for deleted files, or else by its
// path as the process sees it. The table is empty if neither works.
func (r *Resolver) readTable(pid uint32, m *mapping) *table {
	f, err := os.Open(r.path(pid, fmt.Sprintf("map_files/%x-%x", m.start, m.end)))
	if err != nil {
		f, err = openIn(r.path(pid, "root"), m.path)
	}
	if err != nil {
		return &table{}
	}
	defer func() { _ = f.Close() }() // read only
	return readELF(f)
}

// openIn opens a regular file below root without leaving it.
func openIn(root, name string) (*os.File, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the root of a process: %w", err)
	}
	defer func() { _ = r.Close() }() // read only
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	info, err := r.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: %w", name, cmp.Or(err, os.ErrInvalid))
	}
	return r.Open(name)
}

// parseMappings parses the executable mappings of /proc/PID/maps.
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
	slices.SortFunc(all, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	return all
}
