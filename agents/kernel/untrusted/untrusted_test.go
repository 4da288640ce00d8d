package untrusted

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// Only regular files below the root are opened, and opening never waits for the other end of a pipe.
func TestOpen(t *testing.T) {
	deadline := time.AfterFunc(time.Minute, func() { panic("it waits for a writer of the pipe") })
	defer deadline.Stop()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600),
		os.Symlink("/dev/zero", filepath.Join(root, "link")), os.Symlink("file", filepath.Join(root, "inner")))
	if err != nil {
		t.Skip(err)
	}
	for name, want := range map[string]bool{
		"file": true, "/inner": true, "/../file": true, "pipe": false, "link": false, ".": false, "none": false,
	} {
		f, err := OpenIn(root, name)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
	for _, name := range []string{filepath.Join(root, "pipe"), "/dev/zero", root} {
		if _, err := Open(name); err == nil {
			t.Errorf("%s is open", name)
		}
	}
	// The process may replace the file with a pipe between the check and the opening.
	swapped := func(name string) (os.FileInfo, error) { return os.Stat(strings.Replace(name, "pipe", "file", 1)) }
	if _, err := open(filepath.Join(root, "pipe"), swapped, os.OpenFile); err == nil {
		t.Error("the pipe is open")
	}
}

// Inspections that don't end don't block others, are bounded, and make room when they end.
func TestInspect(t *testing.T) {
	i := &Inspector{Patience: time.Millisecond}
	end, ended := make(chan struct{}), make(chan struct{}, maxLate)
	var answers []*Answer[int]
	for range maxLate {
		answers = append(answers, Inspect(i, func() int { <-end; defer func() { ended <- struct{}{} }(); return 7 }))
	}
	if Inspect(i, func() int { return 1 }) != nil {
		t.Error("too many inspections")
	}
	if _, ok := answers[0].Take(); ok {
		t.Error("an answer before there is one")
	}
	close(end)
	for range maxLate {
		<-ended
	}
	for deadline := time.Now().Add(time.Minute); i.late.Load() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("they still count")
		}
	}
	if x, ok := answers[0].Take(); !ok || x != 7 {
		t.Errorf("%d, %t", x, ok)
	}
}

// file returns an ELF file with the given sections. The first section contains their names.
func file(sections []elf.Section64, contents ...[]byte) []byte {
	h := elf.Header64{
		Ident:     [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:      uint16(elf.ET_DYN),
		Machine:   uint16(elf.EM_X86_64),
		Version:   uint32(elf.EV_CURRENT),
		Ehsize:    64,
		Shentsize: 64,
		Shoff:     64,
		Shnum:     uint16(len(sections)),
		Shstrndx:  0,
	}
	at := uint64(64 + 64*len(sections))
	for i, c := range contents {
		if sections[i].Off == 0 {
			sections[i].Off, sections[i].Size = at, max(sections[i].Size, uint64(len(c)))
		}
		at += uint64(len(c))
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, h)
	_ = binary.Write(&b, binary.LittleEndian, sections)
	for _, c := range contents {
		b.Write(c)
	}
	return b.Bytes()
}

// The sizes in an ELF file aren't trusted, whatever the names of its sections.
func TestELF(t *testing.T) {
	names := elf.Section64{Type: uint32(elf.SHT_STRTAB)}
	if _, err := NewELF(bytes.NewReader(file([]elf.Section64{names}, []byte{0}))); err != nil {
		t.Fatal(err)
	}
	many := file([]elf.Section64{{Type: uint32(elf.SHT_STRTAB), Size: 1 << 24}}, []byte{0})
	many[60], many[61] = 0, 0 // the number is in the size of the first section
	large, squeezed := names, names
	large.Size, squeezed.Flags = maxNames+1, uint64(elf.SHF_COMPRESSED)
	for name, b := range map[string][]byte{
		"many sections": many, "long names": file([]elf.Section64{large}, []byte{0}),
		"compressed names": file([]elf.Section64{squeezed}, []byte{0}),
	} {
		if _, err := NewELF(bytes.NewReader(b)); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	symbol := make([]byte, elf.Sym64Size)
	symbol[0], symbol[4] = 1, byte(elf.STT_FUNC)
	text := append([]byte{0}, bytes.Repeat([]byte("x"), 1<<20)...) // without end
	table := func(size uint64) []byte {
		return file([]elf.Section64{
			names, {Type: uint32(elf.SHT_SYMTAB), Link: 2, Size: size}, {Type: uint32(elf.SHT_PROGBITS)},
		}, []byte{0}, symbol, text)
	}
	for size, want := range map[uint64]int{elf.Sym64Size: MaxName, MaxSection + 1: 0, 1 << 62: 0} {
		f, err := NewELF(bytes.NewReader(table(size)))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		err = f.Symbols(elf.SHT_SYMTAB, func(s *Symbol) { got = len(s.Name) }, elf.STT_FUNC)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%d bytes: a name of %d bytes, %v", size, got, err)
		}
	}
}

// The checked header of a file stays the same even if the process changes the file.
func TestHeadIsKept(t *testing.T) {
	b := file([]elf.Section64{{Type: uint32(elf.SHT_STRTAB)}}, []byte{0})
	l := &limitedReader{r: bytes.NewReader(b), left: maxRead}
	if err := l.checkHead(); err != nil {
		t.Fatal(err)
	}
	copy(b[60:], []byte{0xff, 0xff})
	binary.LittleEndian.PutUint64(b[64+32:], 1<<40)
	f, err := elf.NewFile(l)
	if err != nil || len(f.Sections) != 1 || f.Sections[0].Size != 1 {
		t.Errorf("%v", err)
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"main": "main", "a\xffb": "a\uFFFDb", strings.Repeat("ä", MaxName): strings.Repeat("ä", MaxName/2),
	} {
		if got := Name(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q", in, got)
		}
	}
}
