package untrusted

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on ELF files. Regular programs stay far below them.
const (
	// MaxSection is the maximum size of sections that are read, in bytes.
	MaxSection = 64 << 20
	// maxRead is the maximum total size of all reads of a file, in bytes.
	maxRead     = 512 << 20
	maxSections = 1024
	maxNames    = 64 << 10 // bytes of the names of all sections
)

var errTooLarge = errors.New("a part of the file is too large to be read")

// ELF is an ELF file with limited table sizes.
type ELF struct {
	*elf.File
	r io.ReaderAt
}

// NewELF reads the header of an ELF file. It checks the header first, because package elf trusts it.
func NewELF(r io.ReaderAt) (f *ELF, err error) {
	defer func() { // package elf doesn't check all of its input
		if x := recover(); x != nil {
			f, err = nil, fmt.Errorf("read the ELF file: %v", x)
		}
	}()
	limited := &limitedReader{r: r, left: maxRead}
	if err := limited.checkHead(); err != nil {
		return nil, err
	}
	parsed, err := elf.NewFile(limited)
	if err != nil {
		return nil, fmt.Errorf("read the ELF file: %w", err)
	}
	return &ELF{parsed, limited}, nil
}

// Reader returns a reader of the file for packages that read it themselves. Such reads count toward the limit on the
// total size of all reads.
func (f *ELF) Reader() io.ReaderAt { return f.r }

// limitedReader reads up to a total number of bytes. It keeps copies of the parts that have been checked, because the
// process may change the file at any time.
type limitedReader struct {
	r    io.ReaderAt
	left int64
	kept []part
}

// part is a part of a file.
type part struct {
	at   int64
	data []byte
}

// ReadAt implements [io.ReaderAt].
func (l *limitedReader) ReadAt(p []byte, at int64) (int, error) {
	for _, k := range l.kept {
		if at >= k.at && at-k.at+int64(len(p)) <= int64(len(k.data)) {
			return copy(p, k.data[at-k.at:]), nil
		}
	}
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errTooLarge
	}
	return l.r.ReadAt(p, at)
}

// keep reads size bytes at the offset `at` and keeps a copy for later reads.
func (l *limitedReader) keep(at int64, size int) ([]byte, error) {
	data := make([]byte, size)
	n, err := l.ReadAt(data, at)
	if n < size {
		return nil, fmt.Errorf("read the head of the ELF file: %w", err)
	}
	l.kept = append(l.kept, part{at, data})
	return data, nil
}

// checkHead checks the number of sections, and the section with their names. Each name must end with a zero byte,
// because package elf copies names up to the next zero byte.
func (l *limitedReader) checkHead() error {
	b, err := l.keep(0, 16)
	if err != nil {
		return err
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	var at, flags, length uint64
	wide := elf.Class(b[elf.EI_CLASS]) == elf.ELFCLASS64
	numbers := 46 // offset of the size and the number of sections, and of the index of the section with their names
	if wide {
		numbers = 58
	}
	if b, err = l.keep(0, numbers+6); err != nil {
		return err
	}
	l.kept = l.kept[1:]
	if at = uint64(order.Uint32(b[32:])); wide {
		at = order.Uint64(b[40:])
	}
	size := int(order.Uint16(b[numbers:]))
	number, names := int(order.Uint16(b[numbers+2:])), int(order.Uint16(b[numbers+4:]))
	switch {
	case at == 0:
		return nil // there are no sections
	case number == 0 || number > maxSections || names >= number || size < 40 || wide && size < 64 || int64(at) < 0:
		return fmt.Errorf("%d sections of %d bytes: %w", number, size, errTooLarge)
	}
	if b, err = l.keep(int64(at), number*size); err != nil {
		return err
	}
	s := b[names*size:]
	if flags, length = uint64(order.Uint32(s[8:])), uint64(order.Uint32(s[20:])); wide {
		flags, length = order.Uint64(s[8:]), order.Uint64(s[32:])
	}
	if length > maxNames || flags&uint64(elf.SHF_COMPRESSED) != 0 {
		return fmt.Errorf("the names of sections: %w", errTooLarge)
	}
	return nil
}

// Data returns the contents of a section, or an error if they exceed MaxSection bytes.
func Data(s *elf.Section) ([]byte, error) {
	if s.Size > MaxSection || s.FileSize > MaxSection {
		return nil, fmt.Errorf("section %s: %w", s.Name, errTooLarge)
	}
	return s.Data()
}

// Symbol is a named address.
type Symbol struct {
	Number      uint32 // in its table
	Section     elf.SectionIndex
	Value, Size uint64
	Name        string // at most MaxName bytes
}

// Symbols calls each for the symbols of the given types in all tables of type table, SHT_SYMTAB or SHT_DYNSYM. It does
// not use package elf, because that would copy the string table for each symbol if the names were not terminated.
func (f *ELF) Symbols(table elf.SectionType, each func(*Symbol), types ...elf.SymType) error {
	for _, s := range f.Sections {
		if s.Type != table || int(s.Link) >= len(f.Sections) {
			continue
		}
		data, err := Data(s)
		if err != nil {
			return err
		}
		names, err := Data(f.Sections[s.Link])
		if err != nil {
			return err
		}
		f.symbols(data, names, each, types)
	}
	return nil
}

func (f *ELF) symbols(data, names []byte, each func(*Symbol), types []elf.SymType) {
	size := elf.Sym32Size
	if f.Class == elf.ELFCLASS64 {
		size = elf.Sym64Size
	}
	for number := 0; len(data) >= size; number, data = number+1, data[size:] {
		var name uint32
		var info byte
		s := Symbol{Number: uint32(number)}
		order := f.ByteOrder
		if name = order.Uint32(data); f.Class == elf.ELFCLASS64 {
			info, s.Section = data[4], elf.SectionIndex(order.Uint16(data[6:]))
			s.Value, s.Size = order.Uint64(data[8:]), order.Uint64(data[16:])
		} else {
			info, s.Section = data[12], elf.SectionIndex(order.Uint16(data[14:]))
			s.Value, s.Size = uint64(order.Uint32(data[4:])), uint64(order.Uint32(data[8:]))
		}
		for _, t := range types {
			if elf.ST_TYPE(info) == t {
				s.Name = Text(names, uint64(name))
				each(&s)
			}
		}
	}
}

// Text returns the text at the offset `at` in a string table, up to its terminating zero byte or [MaxName] bytes. It
// returns "" if `at` is beyond the end.
func Text(table []byte, at uint64) string {
	if at >= uint64(len(table)) {
		return ""
	}
	text := table[at:min(at+MaxName, uint64(len(table)))]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return string(text)
}
