package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
)

// log stores packed observations, to read them several times: in memory up to a limit, and the others in a temporary
// file without a name. It is not safe for concurrent use.
type log struct {
	packer  observation.Packer
	dir     string // of the temporary file; empty: that of the system
	limit   int    // maximum bytes in memory
	kept    int    // bytes in memory
	chunks  [][]byte
	file    *os.File // nil until the limit is reached
	spilled *bufio.Writer
	written int64 // bytes in the file
}

// chunkBytes is the size of a chunk of memory: large enough that chunks are few, small enough that a half-empty last
// one wastes little.
const chunkBytes = 1 << 20

func newLog(dir string, limit int) *log { return &log{dir: dir, limit: limit} }

// add appends an observation. Any error is that of the temporary file.
func (l *log) add(o *observation.Observation) error {
	n := len(l.chunks)
	if n == 0 || len(l.chunks[n-1]) >= chunkBytes {
		if err := l.grow(); err != nil {
			return err
		}
		n = len(l.chunks)
	}
	before := len(l.chunks[n-1])
	l.chunks[n-1] = l.packer.Append(l.chunks[n-1], o)
	l.kept += len(l.chunks[n-1]) - before
	return nil
}

// grow adds an empty chunk. Above the limit it first writes the full chunks to the file and reuses their memory.
func (l *log) grow() error {
	if l.kept < l.limit || len(l.chunks) == 0 {
		l.chunks = append(l.chunks, make([]byte, 0, chunkBytes+chunkBytes/8))
		return nil
	}
	if err := l.spill(); err != nil {
		return fmt.Errorf("keep observations beyond the memory limit in a temporary file: %w", err)
	}
	clear(l.chunks[1:])
	l.chunks, l.kept = l.chunks[:1], 0
	l.chunks[0] = l.chunks[0][:0]
	return nil
}

func (l *log) spill() error {
	if l.file == nil {
		f, err := os.CreateTemp(l.dir, "sibyl-observations-*")
		if err != nil {
			return err
		}
		l.spillTo(f)
		if err := os.Remove(f.Name()); err != nil { // the file exists until it is closed, even by a crash
			return err
		}
	}
	for _, c := range l.chunks {
		size := binary.AppendUvarint(nil, uint64(len(c)))
		if _, err := l.spilled.Write(size); err != nil {
			return err
		}
		if _, err := l.spilled.Write(c); err != nil {
			return err
		}
		l.written += int64(len(size) + len(c))
	}
	return l.spilled.Flush()
}

// spillTo makes f, which l then owns, the temporary file.
func (l *log) spillTo(f *os.File) { l.file, l.spilled = f, bufio.NewWriterSize(f, chunkBytes) }

// all yields the observations in the order in which they were added. An observation is valid until the next one is
// yielded. An error ends the sequence: that of the file, or one wrapping [codec.ErrCorrupt] if a chunk holds anything
// but packed observations.
func (l *log) all() iter.Seq2[*observation.Observation, error] {
	return func(yield func(*observation.Observation, error) bool) {
		var o observation.Observation
		stopped := false
		err := l.eachChunk(func(chunk []byte) (goOn bool, err error) {
			for len(chunk) > 0 && !stopped {
				if chunk, err = l.packer.Unpack(chunk, &o); err != nil {
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

// eachChunk calls f with every chunk, those in the file first, until f returns false or an error, which it returns.
func (l *log) eachChunk(f func([]byte) (goOn bool, err error)) error {
	if goOn, err := l.eachSpilled(f); !goOn || err != nil {
		return err
	}
	for _, chunk := range l.chunks {
		if goOn, err := f(chunk); !goOn || err != nil {
			return err
		}
	}
	return nil
}

// eachSpilled calls f with every chunk in the file, and returns its last result.
func (l *log) eachSpilled(f func([]byte) (goOn bool, err error)) (goOn bool, err error) {
	if l.file == nil {
		return true, nil
	}
	r := bufio.NewReaderSize(io.NewSectionReader(l.file, 0, l.written), chunkBytes)
	var chunk []byte
	for {
		size, err := binary.ReadUvarint(r)
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		case size > uint64(l.written):
			return false, io.ErrUnexpectedEOF
		}
		chunk = slices.Grow(chunk[:0], int(size))[:size]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return false, err
		}
		if goOn, err := f(chunk); !goOn || err != nil {
			return false, err
		}
	}
}

// close releases the memory and closes the file.
func (l *log) close() error {
	l.chunks = nil
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
