package assemble

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// maxRuns is the maximum number of runs, which limits the buffers of a merge. When it is reached, all runs are merged
// into one.
const maxRuns = 128

// runBuffer is the size of the buffer for reading or writing a run, in bytes.
const runBuffer = 128 << 10

// source yields the encoded fragments of traces in ascending order of IDs.
type source interface {
	// next advances to the next trace and returns its ID and the size of its fragments, or io.EOF after the last
	// trace.
	next() (id trace.ID, size int64, err error)
	// fragments calls f with the current trace in one or more pieces, each of which consists of whole fragments.
	fragments(f func([]byte) error) error
}

// memorySource yields the open traces of an assembler that are in memory.
type memorySource struct {
	o   *Offline
	ids []trace.ID
	at  chain
}

func newMemorySource(o *Offline) *memorySource {
	s := &memorySource{o: o, ids: make([]trace.ID, 0, len(o.open))}
	for id := range o.open {
		s.ids = append(s.ids, id)
	}
	slices.SortFunc(s.ids, trace.ID.Compare)
	return s
}

func (s *memorySource) next() (trace.ID, int64, error) {
	if len(s.ids) == 0 {
		return trace.ID{}, 0, io.EOF
	}
	id := s.ids[0]
	s.ids = s.ids[1:]
	s.at = s.o.open[id]
	size := int64(0)
	_ = s.fragments(func(b []byte) error { // the function returns no error
		size += int64(len(b))
		return nil
	})
	return id, size, nil
}

func (s *memorySource) fragments(f func([]byte) error) error {
	for at, more := s.at.first, true; more; {
		var data []byte
		data, at, more = s.o.arena.at(at)
		if err := f(data); err != nil {
			return err
		}
	}
	return nil
}

// runSource yields the traces of a run on disk. A trace is stored as its ID, the size of its fragments, and the
// fragments.
type runSource struct {
	r      *bufio.Reader
	header [blockHeader]byte
	size   int64
	buf    []byte
}

// blockHeader is the size of the header before a trace's fragments: its ID and their size.
const blockHeader = 16 + 8

func (s *runSource) next() (trace.ID, int64, error) {
	if _, err := io.ReadFull(s.r, s.header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCorrupt
		}
		return trace.ID{}, 0, err
	}
	s.size = int64(binary.LittleEndian.Uint64(s.header[16:]))
	return trace.ID(s.header[:16]), s.size, nil
}

func (s *runSource) fragments(f func([]byte) error) error {
	s.buf = slices.Grow(s.buf[:0], int(s.size))[:s.size]
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return errors.Join(errCorrupt, err)
	}
	return f(s.buf)
}

// spill is the temporary file for sorted runs. The first run creates it. If the system allows it, the file is unlinked
// immediately, so that nothing is left behind when the process ends.
type spill struct {
	dir     string
	file    *os.File
	named   bool // the file couldn't be unlinked while open
	runs    []section
	end     int64
	written int64
}

type section struct{ offset, size int64 }

// run writes all traces of src as a new run. If there are already maxRuns, it merges the existing runs first.
func (s *spill) run(src source) error {
	if len(s.runs) == maxRuns {
		if err := s.compact(); err != nil {
			return err
		}
	}
	if s.file == nil {
		if err := s.create(); err != nil {
			return err
		}
	}
	m, err := newMerger([]source{src})
	if err != nil {
		return err
	}
	return s.write(m)
}

// write appends the traces of m to the file as a run.
func (s *spill) write(m *merger) error {
	w := bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.end), runBuffer)
	size := int64(0)
	header := make([]byte, blockHeader)
	for {
		id, err := m.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		copy(header, id[:])
		binary.LittleEndian.PutUint64(header[16:], uint64(m.size()))
		size += blockHeader + m.size()
		if _, err := w.Write(header); err != nil {
			return err
		}
		err = m.take(func(b []byte) error {
			_, err := w.Write(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.runs = append(s.runs, section{s.end, size})
	s.end += size
	s.written += size
	return nil
}

// compact merges all runs into one, in a new file.
func (s *spill) compact() error {
	m, err := s.merger()
	if err != nil {
		return err
	}
	compacted := spill{dir: s.dir, written: s.written}
	if err := compacted.create(); err != nil {
		return err
	}
	if err := compacted.write(m); err != nil {
		return errors.Join(err, compacted.close())
	}
	err = s.close()
	*s = compacted
	return err
}

// merger returns a merger of all runs and the sources in other.
func (s *spill) merger(other ...source) (*merger, error) {
	sources := other
	for _, r := range s.runs {
		sources = append(sources, s.source(r))
	}
	return newMerger(sources)
}

// find returns a merger of the traces with the given IDs, from the runs and from the open traces in memory.
func (s *spill) find(ids []trace.ID, memory *Offline) (*merger, error) {
	wanted := make(map[trace.ID]bool, len(ids))
	open := &memorySource{o: memory}
	for _, id := range ids {
		if _, found := memory.open[id]; found && !wanted[id] {
			open.ids = append(open.ids, id)
		}
		wanted[id] = true
	}
	slices.SortFunc(open.ids, trace.ID.Compare)
	sources := []source{open}
	for _, r := range s.runs {
		sources = append(sources, &filteredSource{s.source(r), wanted})
	}
	return newMerger(sources)
}

// source returns a source that reads the run r.
func (s *spill) source(r section) *runSource {
	return &runSource{r: bufio.NewReaderSize(io.NewSectionReader(s.file, r.offset, r.size), runBuffer)}
}

// filteredSource yields the wanted traces of a run.
type filteredSource struct {
	*runSource
	wanted map[trace.ID]bool
}

func (s *filteredSource) next() (trace.ID, int64, error) {
	for {
		id, size, err := s.runSource.next()
		if err != nil || s.wanted[id] {
			return id, size, err
		}
		if _, err := s.r.Discard(int(size)); err != nil {
			return trace.ID{}, 0, errors.Join(errCorrupt, err)
		}
	}
}

// create creates the temporary file.
func (s *spill) create() error {
	file, err := os.CreateTemp(s.dir, "sibyl-spill-*")
	if err != nil {
		return fmt.Errorf("create a temporary file: %w", err)
	}
	s.file, s.named = file, os.Remove(file.Name()) != nil
	return nil
}

// close closes and removes the file, if there is one.
func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.file.Name()))
	}
	s.file, s.runs = nil, nil
	return err
}

// merger merges sources. It yields each trace once, in ascending order of IDs.
type merger struct {
	heads []head
	id    trace.ID // the current trace
}

// head is a source with its current trace, which is the next to be merged.
type head struct {
	src  source
	id   trace.ID
	size int64
}

func newMerger(sources []source) (*merger, error) {
	m := &merger{}
	for _, src := range sources {
		id, size, err := src.next()
		if err == nil {
			m.heads = append(m.heads, head{src, id, size})
		} else if !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return m, nil
}

// next returns the ID of the next trace, or io.EOF after the last trace. Call take between calls to next. next takes
// time linear in the number of sources, which is small.
func (m *merger) next() (trace.ID, error) {
	if len(m.heads) == 0 {
		return trace.ID{}, io.EOF
	}
	m.id = m.heads[0].id
	for i := range m.heads {
		if m.heads[i].id.Compare(m.id) < 0 {
			m.id = m.heads[i].id
		}
	}
	return m.id, nil
}

// size returns the size of the current trace's fragments.
func (m *merger) size() int64 {
	size := int64(0)
	for i := range m.heads {
		if m.heads[i].id == m.id {
			size += m.heads[i].size
		}
	}
	return size
}

// take calls f with the fragments of the current trace and advances its sources.
func (m *merger) take(f func([]byte) error) error {
	kept := m.heads[:0]
	for _, h := range m.heads {
		if h.id == m.id {
			if err := h.src.fragments(f); err != nil {
				return err
			}
			var err error
			if h.id, h.size, err = h.src.next(); errors.Is(err, io.EOF) {
				continue
			} else if err != nil {
				return err
			}
		}
		kept = append(kept, h)
	}
	m.heads = kept
	return nil
}
