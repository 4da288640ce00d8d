package join

import (
	"debug/buildinfo"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"go/version"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
)

// knownOffsets holds offsets in structures of Go's runtime, by version, for programs without DWARF. [TestOffsets]
// compares them with the offsets in the toolchain that runs the test.
var knownOffsets = map[string]Context{
	"go1.26": {Kind: GoLabels, M: 48, Curg: 184, Labels: 352},
}

// firstWithSlice is the first version of Go that keeps labels in a slice. Earlier versions keep them in a map, which
// the probes do not read.
const firstWithSlice = "go1.24"

// findContext returns the location of the spans of the threads of a program. program is the path of its executable
// file.
func findContext(program string) (Context, error) {
	f, err := untrusted.Open(program)
	if err != nil {
		return Context{}, err
	}
	defer func() { _ = f.Close() }() // read only
	return recovered(f)
}

// recovered is like readContext, but converts panics to errors, because packages elf and dwarf don't check all of their
// input.
func recovered(r io.ReaderAt) (c Context, err error) {
	defer func() {
		if x := recover(); x != nil {
			c, err = Context{}, fmt.Errorf("read the program: %v", x)
		}
	}()
	return readContext(r)
}

func readContext(r io.ReaderAt) (Context, error) {
	f, err := untrusted.NewELF(r)
	if err != nil {
		return Context{}, err
	}
	if c, err := recordContext(f); err == nil {
		return c, nil
	}
	built, err := buildinfo.Read(f.Reader())
	if err != nil {
		return Context{}, errNoRecord
	}
	return goContext(f, built.GoVersion)
}

// goContext returns the location of the labels of the goroutines of a Go program.
func goContext(f *untrusted.ELF, goVersion string) (Context, error) {
	if f.Machine != elf.EM_X86_64 || runtime.GOARCH != "amd64" {
		return Context{}, errors.New("goroutines are read on amd64 only")
	}
	goVersion, _, _ = strings.Cut(goVersion, " ") // experiments follow
	goVersion, _, _ = strings.Cut(goVersion, "-") // vendor suffixes
	if !version.IsValid(goVersion) {
		return Context{}, fmt.Errorf("the version of Go is %q: only releases are supported", goVersion)
	}
	if version.Compare(goVersion, firstWithSlice) < 0 {
		return Context{}, fmt.Errorf("it is built by %s; %s or later is needed", goVersion, firstWithSlice)
	}
	c, err := offsets(f, goVersion)
	if err != nil {
		return Context{}, err
	}
	if c.TLS, err = goroutineTLS(f); err != nil {
		return Context{}, err
	}
	return c, nil
}

// offsets returns the offsets in structures of Go's runtime, from knownOffsets or from DWARF.
func offsets(f *untrusted.ELF, goVersion string) (Context, error) {
	if c, ok := knownOffsets[version.Lang(goVersion)]; ok {
		return c, nil
	}
	sections, err := debugInformation(f)
	if err != nil {
		return Context{}, fmt.Errorf("it is built by %s: %w", goVersion, err)
	}
	c, err := readOffsets(sections, f.ByteOrder)
	if err != nil {
		return Context{}, fmt.Errorf("it is built by %s without debug information of Go's runtime: %w", goVersion, err)
	}
	return c, nil
}

// debugSections lists the sections that describe structures, except for .debug_info, without the prefix .debug_.
var debugSections = []string{"abbrev", "str", "line_str", "str_offsets", "addr", "rnglists"}

const (
	maxAbbrev  = 1 << 20  // bytes of .debug_abbrev
	maxTables  = 1 << 30  // total bytes that all units may read, because each unit reads its table again
	maxEntries = 20 << 20 // of the debug information; each 64 bytes of texts, which may overlap, count as another entry
)

var (
	errNoDebug   = errors.New("it is missing or incomplete")
	errMuchDebug = errors.New("it is too large to read")
)

// debugInformation returns the sections of a program that describe structures, by name without the prefix .debug_.
func debugInformation(f *untrusted.ELF) (map[string][]byte, error) {
	sections := make(map[string][]byte)
	for _, s := range f.Sections {
		name, found := strings.CutPrefix(s.Name, ".debug_")
		if !found || name != "info" && !slices.Contains(debugSections, name) {
			continue
		}
		data, err := untrusted.Data(s)
		if err != nil {
			return nil, err
		}
		sections[name] = data
	}
	return sections, nil
}

// readOffsets reads the offsets from debug information. It reads one unit at a time, and only its entries, because
// package dwarf keeps the tables of all units and follows pointers to types to any depth.
func readOffsets(sections map[string][]byte, order binary.ByteOrder) (Context, error) {
	if len(sections["abbrev"]) > maxAbbrev {
		return Context{}, errMuchDebug
	}
	found, entries := Context{Kind: GoLabels}, maxEntries
	missing := map[string]*uint16{
		"runtime.g m": &found.M, "runtime.m curg": &found.Curg, "runtime.g labels": &found.Labels,
	}
	units := sections["info"]
	for tables := 0; tables < maxTables; tables += minUnit + len(sections["abbrev"]) {
		unit, rest := cutUnit(units, order)
		if unit == nil {
			return Context{}, errNoDebug
		}
		data, err := dwarf.New(sections["abbrev"], nil, nil, unit, nil, nil, nil, sections["str"])
		for _, name := range debugSections[2:] {
			if err == nil && sections[name] != nil {
				err = data.AddSection(".debug_"+name, sections[name])
			}
		}
		if err == nil {
			err = readMembers(data.Reader(), missing, &entries)
		}
		if err != nil {
			return Context{}, err
		}
		if len(missing) == 0 {
			return found, nil
		}
		units = rest
	}
	return Context{}, errMuchDebug
}

// minUnit is the minimum size of a unit.
const minUnit = 12

// cutUnit returns the first unit in info, and the rest of info. unit is nil if there is no complete unit.
func cutUnit(info []byte, order binary.ByteOrder) (unit, rest []byte) {
	const long = 0xffffffff // the length follows, of eight bytes
	if len(info) < minUnit {
		return nil, nil
	}
	size := uint64(order.Uint32(info)) + 4
	if size == long+4 {
		size = order.Uint64(info[4:]) + minUnit
	}
	if size < minUnit || size > uint64(len(info)) {
		return nil, nil
	}
	return info[:size], info[size:]
}

// readMembers sets the offsets of those missing members that a unit describes, and deletes them from missing. entries
// is the number of entries that may still be read, and is counted down.
func readMembers(r *dwarf.Reader, missing map[string]*uint16, entries *int) error {
	structure, depth := "", 0 // structure and depth of the members that follow
	for at := 0; len(missing) > 0; {
		e, err := r.Next()
		if e == nil || err != nil {
			return err
		}
		if *entries -= 1 + textSize(e)/64; *entries < 0 {
			return errMuchDebug
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch {
		case e.Tag == 0: // the end of a list of children
			at--
			if at < depth {
				structure = ""
			}
			continue
		case e.Tag == dwarf.TagMember && at == depth && structure != "":
			offset, ok := e.Val(dwarf.AttrDataMemberLoc).(int64)
			key := structure + " " + name
			if to := missing[key]; ok && to != nil && offset >= 0 && offset < 1<<16 {
				*to = uint16(offset)
				delete(missing, key)
			}
		case e.Tag == dwarf.TagStructType && e.Children && (name == "runtime.g" || name == "runtime.m"):
			structure, depth = name, at+1
		}
		if e.Children {
			at++
		}
	}
	return nil
}

// textSize returns the total size of the texts of an entry in bytes.
func textSize(e *dwarf.Entry) (n int) {
	for i := range e.Field {
		if text, ok := e.Field[i].Val.(string); ok {
			n += len(text)
		}
	}
	return n
}

// goroutineTLS returns the offset of the pointer to the goroutine from the thread pointer.
func goroutineTLS(f *untrusted.ELF) (int32, error) {
	const pointer = 8
	if segment := tlsSegment(f); segment == nil || segment.Memsz == pointer {
		return -pointer, nil // the only thread-local variable
	}
	offset, err := tlsOffset(f, elf.SHT_SYMTAB, "runtime.tlsg")
	if err != nil {
		return 0, fmt.Errorf("it is linked with C: %w", err)
	}
	return offset, nil
}
