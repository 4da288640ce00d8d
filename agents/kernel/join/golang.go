package join

import (
	"debug/buildinfo"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"runtime"
	"strings"
)

// maxProgram bounds the programs that are read.
const maxProgram = 2 << 30

// Offsets in structures of Go's runtime, for programs without DWARF. [TestOffsets] compares with those of the
// toolchain that runs it.
var knownOffsets = map[string]Context{
	"go1.26": {Kind: GoLabels, M: 48, Curg: 184, Labels: 352},
}

// firstWithSlice is the first version of Go that keeps labels in a slice. Earlier ones keep them in a map, which the
// probes do not read.
const firstWithSlice = "go1.24"

// findContext returns where a program keeps the spans of its threads.
func findContext(program string) (Context, error) {
	f, err := openProgram(program)
	if err != nil {
		return Context{}, err
	}
	defer func() { _ = f.Close() }() // read only
	return recovered(f)
}

// openProgram opens a program or a library, unless it is too large to be read.
func openProgram(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxProgram) {
		err = fmt.Errorf("%s is no file, or too large to be read", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// recovered is readContext without panics: packages elf and dwarf do not check all of their input.
func recovered(r io.ReaderAt) (c Context, err error) {
	defer func() {
		if x := recover(); x != nil {
			c, err = Context{}, fmt.Errorf("read the program: %v", x)
		}
	}()
	return readContext(r)
}

func readContext(r io.ReaderAt) (Context, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return Context{}, fmt.Errorf("read the program: %w", err)
	}
	if c, err := recordContext(f); err == nil {
		return c, nil
	}
	built, err := buildinfo.Read(r)
	if err != nil {
		return Context{}, errNoRecord
	}
	return goContext(f, built.GoVersion)
}

// goContext returns where a Go program keeps the labels of its goroutines.
func goContext(f *elf.File, goVersion string) (Context, error) {
	if f.Machine != elf.EM_X86_64 || runtime.GOARCH != "amd64" {
		return Context{}, errors.New("goroutines are read on amd64 only")
	}
	goVersion, _, _ = strings.Cut(goVersion, " ") // experiments follow
	goVersion, _, _ = strings.Cut(goVersion, "-") // suffixes of vendors
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

// offsets returns the offsets in structures of Go's runtime, from the table or from DWARF.
func offsets(f *elf.File, goVersion string) (Context, error) {
	if c, ok := knownOffsets[version.Lang(goVersion)]; ok {
		return c, nil
	}
	data, err := f.DWARF()
	if err != nil {
		return Context{}, fmt.Errorf("it is built by %s without debug information: %w", goVersion, err)
	}
	return readOffsets(data)
}

// readOffsets reads the offsets from debug information.
func readOffsets(data *dwarf.Data) (Context, error) {
	c := Context{Kind: GoLabels}
	missing := map[string]*uint16{"runtime.g m": &c.M, "runtime.m curg": &c.Curg, "runtime.g labels": &c.Labels}
	r := data.Reader()
	for len(missing) > 0 {
		e, err := r.Next()
		if err != nil {
			return Context{}, fmt.Errorf("read the debug information: %w", err)
		}
		if e == nil {
			return Context{}, errors.New("the debug information lacks structures of Go's runtime")
		}
		if e.Tag == dwarf.TagSubprogram {
			r.SkipChildren()
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		if e.Tag != dwarf.TagStructType || name != "runtime.g" && name != "runtime.m" {
			continue
		}
		t, err := data.Type(e.Offset)
		if err != nil {
			return Context{}, fmt.Errorf("read the debug information: %w", err)
		}
		s, ok := t.(*dwarf.StructType)
		if !ok {
			continue
		}
		for _, field := range s.Field {
			key := name + " " + field.Name
			if to := missing[key]; to != nil && field.ByteOffset >= 0 && field.ByteOffset < 1<<16 {
				*to = uint16(field.ByteOffset)
				delete(missing, key)
			}
		}
	}
	return c, nil
}

// goroutineTLS returns the offset of the pointer to the goroutine from the thread pointer.
func goroutineTLS(f *elf.File) (int32, error) {
	const pointer = 8
	if segment := tlsSegment(f); segment == nil || segment.Memsz == pointer {
		return -pointer, nil // the only thread-local variable
	}
	symbols, err := f.Symbols()
	if err != nil {
		return 0, errors.New("it is linked with C and has no symbols")
	}
	return tlsOffset(f, symbols, "runtime.tlsg")
}
