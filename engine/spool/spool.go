// Package spool stores packed observations that are read several times. It keeps them in memory up to a limit, and the
// rest in a temporary file.
package spool

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Spool is a sequence of packed observations. The temporary file is unlinked as soon as it is created, so that it
// disappears even if the process is killed. A Spool is not safe for concurrent use.
type Spool struct {
	packer  observation.Packer
	dir     string
	limit   int // maximum of kept; above it, full chunks are written to the file
	kept    int // bytes in memory
	chunks  [][]byte
	file    *os.File // nil until the memory is used up
	spilled *bufio.Writer
	written int64 // bytes in the file
}

// chunkBytes is the size at which a chunk of memory is full. It is large enough to keep the number of chunks low, and
// small enough that a half-empty chunk wastes little.
const chunkBytes = 1 << 20

// New returns an empty Spool that keeps about limit bytes in memory and the rest in a temporary file in dir. An empty
// dir means the system's directory for temporary files.
func New(dir string, limit int) *Spool { return &Spool{dir: dir, limit: limit} }

// Bytes returns the number of bytes in memory.
func (s *Spool) Bytes() int { return s.kept }

// Add appends o and doesn't retain it. It returns an error only if writing to the temporary file fails.
func (s *Spool) Add(o *observation.Observation) error {
	n := len(s.chunks)
	if n == 0 || len(s.chunks[n-1]) >= chunkBytes {
		if err := s.grow(); err != nil {
			return err
		}
		n = len(s.chunks)
	}
	before := len(s.chunks[n-1])
	s.chunks[n-1] = s.packer.Append(s.chunks[n-1], o)
	s.kept += len(s.chunks[n-1]) - before
	return nil
}

// grow adds an empty chunk. If the limit is exceeded, it first writes the full chunks to the file and reuses their
// memory.
func (s *Spool) grow() error {
	if s.kept < s.limit || len(s.chunks) == 0 {
		s.chunks = append(s.chunks, newChunk())
		return nil
	}
	if err := s.spill(); err != nil {
		return fmt.Errorf("keep observations beyond the memory limit in a temporary file: %w", err)
	}
	clear(s.chunks[1:])
	s.chunks, s.kept = s.chunks[:1], 0
	s.chunks[0] = s.chunks[0][:0]
	return nil
}

func newChunk() []byte { return make([]byte, 0, chunkBytes+chunkBytes/8) }

func (s *Spool) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "sibyl-observations-*")
		if err != nil {
			return err
		}
		s.spillTo(f)
		if err := os.Remove(f.Name()); err != nil { // the file exists until it is closed, even if the process is killed
			return err
		}
	}
	for _, c := range s.chunks {
		size := binary.AppendUvarint(nil, uint64(len(c)))
		if _, err := s.spilled.Write(size); err != nil {
			return err
		}
		if _, err := s.spilled.Write(c); err != nil {
			return err
		}
		s.written += int64(len(size) + len(c))
	}
	return s.spilled.Flush()
}

// spillTo makes f the temporary file and takes ownership of it.
func (s *Spool) spillTo(f *os.File) { s.file, s.spilled = f, bufio.NewWriterSize(f, chunkBytes) }

// All yields the observations in the order they were added. An observation is valid until the next one is yielded. The
// sequence ends after an error, which comes from reading the file or, if a chunk contains anything other than packed
// observations, wraps [codec.ErrCorrupt].
func (s *Spool) All() iter.Seq2[*observation.Observation, error] {
	return func(yield func(*observation.Observation, error) bool) {
		var o observation.Observation
		stopped := false
		err := s.eachChunk(func(chunk []byte) (more bool, err error) {
			for len(chunk) > 0 && !stopped {
				if chunk, err = s.packer.Unpack(chunk, &o); err != nil {
					return false, err
				}
				stopped = !yield(&o, nil)
			}
			return !stopped, nil
		})
		if err != nil {
			yield(nil, fmt.Errorf("read back observations: %w", err))
		}
	}
}

// InOrder yields the observations with their ranks, by ascending rank. Observations of equal rank stay in the order
// they were added. InOrder calls rank for all observations, in the order they were added, before it yields the first
// one. An observation is valid until the next one is yielded. InOrder panics if there are observations in the temporary
// file.
func (s *Spool) InOrder(rank func(o *observation.Observation) int) iter.Seq2[int, *observation.Observation] {
	if s.file != nil {
		panic("spool: ordered while part of it is in a file")
	}
	type place struct{ rank, chunk, at int }
	return func(yield func(int, *observation.Observation) bool) {
		var o observation.Observation
		var order []place
		for i, chunk := range s.chunks {
			for rest := chunk; len(rest) > 0; {
				at := len(chunk) - len(rest)
				rest = s.unpack(rest, &o)
				order = append(order, place{rank(&o), i, at})
			}
		}
		sorting.SliceStable(order, func(a, b place) int { return cmp.Compare(a.rank, b.rank) })
		for _, p := range order {
			if s.unpack(s.chunks[p.chunk][p.at:], &o); !yield(p.rank, &o) {
				return
			}
		}
	}
}

// unpack unpacks the first observation in b into o and returns the rest of b. It can't fail because the observation was
// packed here or checked when it was decoded.
func (s *Spool) unpack(b []byte, o *observation.Observation) (rest []byte) {
	rest, err := s.packer.Unpack(b, o)
	if err != nil {
		panic("spool: " + err.Error())
	}
	return rest
}

// eachChunk calls f for every chunk, starting with the chunks in the file, until f returns false or an error. It
// returns that error.
func (s *Spool) eachChunk(f func([]byte) (more bool, err error)) error {
	if more, err := s.eachSpilled(f); !more || err != nil {
		return err
	}
	for _, chunk := range s.chunks {
		if more, err := f(chunk); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachSpilled is like eachChunk for only the chunks in the file. more is false if f returned false.
func (s *Spool) eachSpilled(f func([]byte) (more bool, err error)) (more bool, err error) {
	if s.file == nil {
		return true, nil
	}
	r := bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.written), chunkBytes)
	var chunk []byte
	for {
		size, err := binary.ReadUvarint(r)
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		case size > uint64(s.written):
			return false, io.ErrUnexpectedEOF
		}
		chunk = slices.Grow(chunk[:0], int(size))[:size]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return false, err
		}
		if more, err := f(chunk); !more || err != nil {
			return false, err
		}
	}
}

// AppendBinary appends the observations to b. It panics if there are observations in the temporary file.
func (s *Spool) AppendBinary(b []byte) []byte {
	if s.file != nil {
		panic("spool: encoded while part of it is in a file")
	}
	b = codec.AppendSection(b, s.packer.AppendBinary)
	for _, chunk := range s.chunks {
		b = codec.AppendSection(b, func(b []byte) []byte { return append(b, chunk...) })
	}
	return b
}

// Decode decodes a Spool encoded by [Spool.AppendBinary]; b must contain nothing else. The Spool never uses a file.
// Decode doesn't retain b. Errors wrap [codec.ErrCorrupt].
func Decode(b []byte) (*Spool, error) {
	r := codec.NewReader(b)
	packed := r.Section()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: observations", err)
	}
	packer, _, err := observation.DecodePacker(packed)
	if err != nil {
		return nil, err
	}
	s := New("", math.MaxInt)
	s.packer = *packer
	for r.Len() > 0 {
		chunk := r.Section()
		s.chunks = append(s.chunks, append(newChunk(), chunk...))
		s.kept += len(chunk)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: observations", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// check returns the error from unpacking the first invalid observation, or nil if all are valid.
func (s *Spool) check() error {
	for _, err := range s.All() {
		if err != nil {
			return err
		}
	}
	return nil
}

// Close releases the memory and closes the file, which deletes it.
func (s *Spool) Close() error {
	s.chunks = nil
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
