package symbols

import (
	"bufio"
	"cmp"
	"debug/elf"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Limits on hostile files.
const (
	maxPerfMap = 64 << 20
	maxTable   = 64 << 20 // bytes of the names and addresses of a file or a process
	maxLine    = 64 << 10
)

// table holds the functions of a file, ascending by address.
type table struct {
	functions []function
	segments  []segment // of the file
	size      int       // approximate size in bytes
}

// function is a function with its range of addresses.
type function struct {
	start, end uint64 // if end is 0, the function extends to the next one
	name       string
}

// segment maps offsets in the file to addresses.
type segment struct{ offset, size, address uint64 }

// atOffset returns the name of the function at an offset in the file, and whether there is such a function.
func (t *table) atOffset(offset uint64) (string, bool) {
	for _, s := range t.segments {
		if offset >= s.offset && offset-s.offset < s.size {
			return t.at(offset - s.offset + s.address)
		}
	}
	return "", false
}

// at returns the name of the function at an address, and whether there is such a function.
func (t *table) at(address uint64) (name string, ok bool) {
	i, found := slices.BinarySearchFunc(t.functions, address, func(f function, a uint64) int {
		return cmp.Compare(f.start, a)
	})
	if !found {
		i--
	}
	if i >= 0 && (t.functions[i].end == 0 || address < t.functions[i].end) {
		return t.functions[i].name, true
	}
	return "", false
}

// add adds a function, unless its name is empty or the table is full. If size is 0, the function extends to the next
// one.
func (t *table) add(start, size uint64, name string) {
	const overhead = 48
	if start == 0 || name == "" || t.size > maxTable {
		return
	}
	f := function{start: start, name: name}
	if size > 0 {
		f.end = start + size
	}
	t.functions = append(t.functions, f)
	t.size += overhead + len(name)
}

// readELF reads the functions of an ELF file. The table is empty if the file is unreadable.
func readELF(r io.ReaderAt) (t *table) {
	defer func() { // package elf doesn't check all of its input
		if recover() != nil {
			t = &table{}
		}
	}()
	t = &table{}
	f, err := untrusted.NewELF(r)
	if err != nil {
		return t
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			t.segments = append(t.segments, segment{p.Off, p.Filesz, p.Vaddr})
		}
	}
	t.read(f, elf.SHT_SYMTAB)
	hasSymbols := len(t.functions) > 0
	t.read(f, elf.SHT_DYNSYM)
	if !hasSymbols {
		t.readGo(f)
	}
	t.sort()
	return t
}

// read adds the functions in the readable symbol tables of the given kind.
func (t *table) read(f *untrusted.ELF, kind elf.SectionType) {
	_ = f.Symbols(kind, func(s *untrusted.Symbol) { t.add(s.Value, s.Size, s.Name) }, elf.STT_FUNC, elf.STT_GNU_IFUNC)
}

// sort sorts the functions, and keeps only the function with the shortest name at each address, because it has the
// fewest decorations.
func (t *table) sort() {
	sorting.Slice(t.functions, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name))
	})
	t.functions = slices.CompactFunc(t.functions, func(a, b function) bool { return a.start == b.start })
}

// Magic numbers at the start of Go line tables.
const (
	goTable118 = 0xfffffff0
	goTable120 = 0xfffffff1
)

// readGo adds the functions in the line table of a Go program, which remains even if the program is stripped. It
// supports programs built by Go 1.18 or later. We do not use package gosym, because it trusts the sizes in the table.
func (t *table) readGo(f *untrusted.ELF) {
	section, text := f.Section(".gopclntab"), f.Section(".text")
	if section == nil || text == nil || f.Class != elf.ELFCLASS64 {
		return
	}
	data, err := untrusted.Data(section)
	const header = 8 + 8*8
	if err != nil || len(data) < header {
		return
	}
	order := f.ByteOrder
	if magic := order.Uint32(data); magic != goTable118 && magic != goTable120 {
		return
	}
	word := func(i int) uint64 { return min(order.Uint64(data[8+8*i:]), uint64(len(data))) } // limited to the data
	names, functions := data[word(3):], data[word(7):]
	for i := range word(0) {
		if 8*i+12 > uint64(len(functions)) {
			return
		}
		// The address of a function and the offset of its data, followed by the address of its end.
		entry := functions[8*i:]
		start, at, end := order.Uint32(entry), uint64(order.Uint32(entry[4:])), order.Uint32(entry[8:])
		if end <= start || at+8 > uint64(len(functions)) {
			continue
		}
		t.add(text.Addr+uint64(start), uint64(end-start), untrusted.Text(names, uint64(order.Uint32(functions[at+4:]))))
	}
}

// readPerfMap reads the names that a just-in-time compiler has written for a process, at the path that the process
// sees. The table is empty if there is no perf map, or if another user has written it. folder is the process's folder
// in the proc file system.
func readPerfMap(folder string, pid uint32) *table {
	t := &table{}
	f, err := untrusted.OpenIn(filepath.Join(folder, "root"), "tmp/perf-"+innerPID(folder, pid)+".map")
	if err != nil {
		return t
	}
	defer func() { _ = f.Close() }() // read only
	if !untrusted.WrittenFor(f, folder) {
		return t
	}
	for line := range lines(io.LimitReader(f, maxPerfMap)) {
		// 7f3a14000000 1c0 name of the function
		parts := strings.SplitN(line, " ", 3)
		if len(parts) < 3 {
			continue
		}
		start, err1 := strconv.ParseUint(strings.TrimPrefix(parts[0], "0x"), 16, 64)
		size, err2 := strconv.ParseUint(strings.TrimPrefix(parts[1], "0x"), 16, 64)
		if errors.Join(err1, err2) == nil && size > 0 {
			t.add(start, size, strings.Clone(parts[2][:min(len(parts[2]), untrusted.MaxName)])) // not the whole line
		}
	}
	// A compiler reuses memory, so the last of several names for an address is the current one.
	slices.Reverse(t.functions)
	sorting.SliceStable(t.functions, func(a, b function) int { return cmp.Compare(a.start, b.start) })
	t.functions = slices.CompactFunc(t.functions, func(a, b function) bool { return a.start == b.start })
	return t
}

// innerPID returns the ID of a process in its own PID namespace, or pid if that ID is unknown.
func innerPID(folder string, pid uint32) string {
	own := strconv.FormatUint(uint64(pid), 10)
	text, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return own
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if all := strings.Fields(ids); len(all) > 0 {
				return all[len(all)-1]
			}
		}
	}
	return own
}

// lines yields the lines of a text up to the first line that is longer than maxLine.
func lines(r io.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			if !yield(s.Text()) {
				return
			}
		}
	}
}
