package symbols

import (
	"bufio"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Limits of hostile files.
const (
	maxSection = 512 << 20
	maxPerfMap = 64 << 20
	maxSymbols = 4 << 20
	maxLine    = 64 << 10
)

// table holds the functions of a file, ascending by address.
type table struct {
	functions []function
	segments  []segment    // of the file
	golang    *gosym.Table // of a Go program without symbols; nil: none
}

// function is a named range of addresses.
type function struct {
	start, end uint64 // end 0: up to the next function
	name       string
}

// segment maps offsets in the file to addresses.
type segment struct{ offset, size, address uint64 }

// atOffset returns the name of the function at an offset in the file.
func (t *table) atOffset(offset uint64) (string, bool) {
	for _, s := range t.segments {
		if offset >= s.offset && offset-s.offset < s.size {
			return t.at(offset - s.offset + s.address)
		}
	}
	return "", false
}

// at returns the name of the function at an address.
func (t *table) at(address uint64) (name string, ok bool) {
	i, found := slices.BinarySearchFunc(t.functions, address, func(f function, a uint64) int { return cmp.Compare(f.start, a) })
	if !found {
		i--
	}
	if i >= 0 && (t.functions[i].end == 0 || address < t.functions[i].end) {
		return t.functions[i].name, true
	}
	return t.inGo(address)
}

func (t *table) inGo(address uint64) (name string, ok bool) {
	if t.golang == nil {
		return "", false
	}
	defer func() { // package gosym does not check all of its input
		if recover() != nil {
			name, ok = "", false
		}
	}()
	if f := t.golang.PCToFunc(address); f != nil {
		return f.Name, true
	}
	return "", false
}

// readELF reads the functions of an ELF file; none if it is unreadable.
func readELF(r io.ReaderAt) (t *table) {
	defer func() { // package elf does not check all of its input
		if recover() != nil {
			t = &table{}
		}
	}()
	t = &table{}
	f, err := elf.NewFile(r)
	if err != nil {
		return t
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			t.segments = append(t.segments, segment{p.Off, p.Filesz, p.Vaddr})
		}
	}
	if small(f, ".symtab", ".strtab") {
		t.add(f.Symbols())
	}
	hasSymbols := len(t.functions) > 0
	if small(f, ".dynsym", ".dynstr") {
		t.add(f.DynamicSymbols())
	}
	t.sort()
	if !hasSymbols {
		t.golang = readGo(f)
	}
	return t
}

// small reports whether the sections have a bearable size.
func small(f *elf.File, sections ...string) bool {
	for _, name := range sections {
		if s := f.Section(name); s != nil && s.Size > maxSection {
			return false
		}
	}
	return true
}

func (t *table) add(symbols []elf.Symbol, err error) {
	if err != nil {
		return
	}
	for _, s := range symbols {
		kind := elf.ST_TYPE(s.Info)
		if (kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC) || s.Value == 0 || s.Name == "" || len(t.functions) >= maxSymbols {
			continue
		}
		end := uint64(0)
		if s.Size > 0 {
			end = s.Value + s.Size
		}
		t.functions = append(t.functions, function{s.Value, end, s.Name})
	}
}

// sort sorts the functions and keeps one for each address: the shortest name has the fewest decorations.
func (t *table) sort() {
	slices.SortFunc(t.functions, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name))
	})
	t.functions = slices.CompactFunc(t.functions, func(a, b function) bool { return a.start == b.start })
}

// readGo reads the line table that Go programs keep even when they are stripped; nil if there is none.
func readGo(f *elf.File) *gosym.Table {
	section, text := f.Section(".gopclntab"), f.Section(".text")
	if section == nil || text == nil || section.Size > maxSection {
		return nil
	}
	data, err := section.Data()
	if err != nil {
		return nil
	}
	t, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil
	}
	return t
}

// readPerfMap reads the names that a just-in-time compiler has written for a process, as the process sees them. The
// table is empty if there are none.
func (r *Resolver) readPerfMap(pid uint32) *table {
	t := &table{}
	f, err := openIn(r.path(pid, "root"), "tmp/perf-"+r.innerPID(pid)+".map")
	if err != nil {
		return t
	}
	defer func() { _ = f.Close() }() // read only
	for line := range lines(io.LimitReader(f, maxPerfMap)) {
		// 7f3a14000000 1c0 name of the function
		parts := strings.SplitN(line, " ", 3)
		if len(parts) < 3 || len(t.functions) >= maxSymbols {
			continue
		}
		start, err1 := strconv.ParseUint(strings.TrimPrefix(parts[0], "0x"), 16, 64)
		size, err2 := strconv.ParseUint(strings.TrimPrefix(parts[1], "0x"), 16, 64)
		if errors.Join(err1, err2) == nil && size > 0 {
			t.functions = append(t.functions, function{start, start + size, parts[2]})
		}
	}
	// A compiler reuses memory: of names for the same address the last one counts.
	slices.Reverse(t.functions)
	slices.SortStableFunc(t.functions, func(a, b function) int { return cmp.Compare(a.start, b.start) })
	t.functions = slices.CompactFunc(t.functions, func(a, b function) bool { return a.start == b.start })
	return t
}

// innerPID returns the ID of a process in its own PID namespace.
func (r *Resolver) innerPID(pid uint32) string {
	own := strconv.FormatUint(uint64(pid), 10)
	text, err := os.ReadFile(r.path(pid, "status"))
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

// lines yields the lines of a text up to the first that is too long.
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
