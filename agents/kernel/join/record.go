package join

import (
	"debug/elf"
	"errors"
	"fmt"
	"runtime"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
)

// recordSymbol is the name of the thread-local pointer to the record of OTEP 4947.
const recordSymbol = "otel_thread_ctx_v1"

// recordContext returns the location of the records of a program's threads. The program itself, rather than a library,
// must export the pointer.
func recordContext(f *untrusted.ELF) (Context, error) {
	if f.Machine != elf.EM_X86_64 || runtime.GOARCH != "amd64" {
		return Context{}, errors.New("thread records are read on amd64 only")
	}
	offset, err := tlsOffset(f, elf.SHT_DYNSYM, recordSymbol)
	return Context{Kind: ThreadRecord, TLS: offset}, err
}

// tlsSegment returns the segment of thread-local variables, or nil if f has no such variables.
func tlsSegment(f *untrusted.ELF) *elf.Prog {
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS {
			return p
		}
	}
	return nil
}

// tlsOffset returns the offset of a program's thread-local variable from the thread pointer. It is negative, because
// the thread pointer lies after the variables.
func tlsOffset(f *untrusted.ELF, table elf.SectionType, name string) (offset int32, err error) {
	segment := tlsSegment(f)
	if segment == nil {
		return 0, errors.New("it has no thread-local variables")
	}
	size := segment.Memsz
	if a := segment.Align; a > 1 {
		size = (size + a - 1) / a * a
	}
	found := false
	err = f.Symbols(table, func(s *untrusted.Symbol) {
		if s.Name == name && s.Section != elf.SHN_UNDEF && s.Value < size && size < 1<<30 {
			offset, found = int32(int64(s.Value)-int64(size)), true
		}
	}, elf.STT_TLS)
	if err == nil && !found {
		err = fmt.Errorf("it has no symbol %s", name)
	}
	return offset, err
}
