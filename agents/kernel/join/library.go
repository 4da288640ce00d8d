package join

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
)

// maxLibraries is the maximum number of shared libraries of a process that are searched.
const maxLibraries = 1000

// library is a shared library in the memory of a process.
type library struct {
	file string // path of the file, as seen by the process
	base uint64 // address of the first byte
}

// libraryContext returns the location of the records of a process's threads if a shared library, such as an extension
// of an interpreter, stores them. folder is the process's folder in the proc file system.
func libraryContext(folder string) (c Context, err error) {
	if runtime.GOARCH != "amd64" {
		return Context{}, errors.New("thread records are read on amd64 only")
	}
	all, err := libraries(filepath.Join(folder, "maps"))
	if err != nil {
		return Context{}, err
	}
	for _, l := range all {
		at, found, err := l.descriptor(filepath.Join(folder, "root"))
		if err != nil {
			return Context{}, fmt.Errorf("%s: %w", l.file, err)
		}
		if found {
			offset, err := readDescriptor(filepath.Join(folder, "mem"), at)
			if err != nil {
				return Context{}, fmt.Errorf("%s: %w", l.file, err)
			}
			return Context{Kind: ThreadRecord, TLS: offset}, nil
		}
	}
	return Context{}, errNoRecord
}

var errNoRecord = fmt.Errorf("it is not a Go program, neither it nor its libraries export %s, and it is not a JVM "+
	"whose agent has waits:on", recordSymbol)

// libraries returns at most maxLibraries shared libraries listed in maps, the file with a process's mappings.
func libraries(maps string) (all []library, err error) {
	f, err := os.Open(maps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // range, rights, offset, device, inode, file
		if len(fields) != 6 || fields[2] != "00000000" || !strings.Contains(filepath.Base(fields[5]), ".so") ||
			!strings.HasPrefix(fields[5], "/") {
			continue
		}
		from, _, _ := strings.Cut(fields[0], "-")
		base, err := strconv.ParseUint(from, 16, 64)
		if err == nil && len(all) < maxLibraries {
			all = append(all, library{fields[5], base})
		}
	}
	return all, nil
}

// descriptor returns the address of the TLS descriptor for the pointer to the record, and whether the library exports
// the pointer. The OTEP recommends descriptors because they contain the offset before any code of the library has run.
// root is the process's root folder.
func (l *library) descriptor(root string) (at uint64, found bool, err error) {
	f, err := untrusted.OpenIn(root, l.file)
	if err != nil {
		return 0, false, nil //nolint:nilerr // it has been replaced on disk, or is no library
	}
	defer func() { _ = f.Close() }() // read only
	defer func() {
		if x := recover(); x != nil { // package elf doesn't check all of its input
			at, found, err = 0, false, nil
		}
	}()
	e, err := untrusted.NewELF(f)
	if err != nil || e.Machine != elf.EM_X86_64 {
		return 0, false, nil //nolint:nilerr // no library that this process could use
	}
	number := uint64(0) // of the symbol; the first is 1
	err = e.Symbols(elf.SHT_DYNSYM, func(s *untrusted.Symbol) {
		if s.Name == recordSymbol && s.Section != elf.SHN_UNDEF {
			number = uint64(s.Number)
		}
	}, elf.STT_TLS)
	if err != nil || number == 0 {
		return 0, false, nil //nolint:nilerr // it exports nothing
	}
	for _, s := range e.Sections {
		if s.Type != elf.SHT_RELA { //nolint:misspell // relocations with addend
			continue
		}
		data, err := untrusted.Data(s)
		if err != nil {
			continue
		}
		for entry := range slices.Chunk(data, relocationSize) {
			if len(entry) < relocationSize {
				break
			}
			offset, info := binary.LittleEndian.Uint64(entry), binary.LittleEndian.Uint64(entry[8:])
			if elf.R_TYPE64(info) == uint32(elf.R_X86_64_TLSDESC) && info>>32 == number {
				return l.base + offset, true, nil
			}
		}
	}
	const want = "it accesses %s without a TLS descriptor: build it with -mtls-dialect=gnu2"
	return 0, false, fmt.Errorf(want, recordSymbol)
}

// relocationSize is the size of an [elf.Rela64].
const relocationSize = 24

// readDescriptor returns the offset from the thread pointer in the TLS descriptor at the address `at`. memory is the
// path of the process's memory file. It returns an error if the offset differs between threads.
func readDescriptor(memory string, at uint64) (offset int32, err error) {
	f, err := os.Open(memory)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var words [2]uint64 // a function and its argument
	if err := binary.Read(io.NewSectionReader(f, int64(at), 16), binary.LittleEndian, &words); err != nil {
		return 0, fmt.Errorf("read the TLS descriptor of %s: %w", recordSymbol, err)
	}
	if x := int64(words[1]); words[0] != 0 && x < 0 && x > -1<<30 {
		return int32(x), nil
	}
	return 0, fmt.Errorf("%s has no fixed place: load the library at the start of the program, "+
		"for example with LD_PRELOAD, or set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096", recordSymbol)
}
