package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Stdin is the path of standard input.
const Stdin = "-"

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// maxZstdWindow limits the memory of the zstd decompressor, in bytes. The limit is the default of `zstd -d`.
const maxZstdWindow = 128 << 20

// rawBufferSize is the size in bytes of reads from pipes and for decompressors. It is the capacity of a pipe.
const rawBufferSize = 64 << 10

// source is a file to read.
type source struct {
	path   string
	size   int64
	pipe   bool // a named pipe: opening it blocks until there is a writer
	listed bool // found in a directory rather than named by the caller
}

// list returns the files in paths. It replaces a directory with all files in and below it, ordered by name, except
// hidden files and directories.
func list(paths []string) ([]source, error) {
	var sources []source
	for _, path := range paths {
		if path == Stdin {
			sources = append(sources, source{path: Stdin})
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		if !info.IsDir() {
			sources = append(sources,
				source{path: path, size: regularSize(info), pipe: info.Mode()&fs.ModeNamedPipe != 0})
			continue
		}
		found, err := listDir(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no files in directory %s", path)
		}
		sources = append(sources, found...)
	}
	return sources, nil
}

// pathError wraps err with the path in err or, if err has no path, with path. It drops the name of the system call.
func pathError(path string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		path, err = failed.Path, failed.Err
	}
	return fmt.Errorf("read %s: %w", path, err)
}

func regularSize(info fs.FileInfo) int64 {
	if info.Mode().IsRegular() {
		return info.Size()
	}
	return 0 // meaningless for pipes and devices
}

func listDir(dir string) ([]source, error) {
	var found []source
	dir += string(filepath.Separator) // follows a link
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		info, err := os.Stat(path) // follows links
		if err == nil && info.Mode().IsRegular() {
			found = append(found, source{path: path, size: info.Size(), listed: true})
		}
		return nil
	})
	return found, err
}

// extensions are the usual extensions of files with traces. A file in a directory that has a different extension is
// read only if its contents look like traces.
var extensions = []string{".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".proto", ".otlp", ".bin"}

// hasTraceExtension reports whether s has one of extensions, possibly followed by the extension of a compressed file.
func (s source) hasTraceExtension() bool {
	name := strings.ToLower(s.path)
	for _, suffix := range []string{".gz", ".gzip", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return slices.Contains(extensions, filepath.Ext(name))
}

// openFile reads the decompressed bytes of an open source.
type openFile struct {
	io.Reader
	raw        *rawReader
	closers    []func() error
	compressed bool
	members    *members // nil if the file isn't gzip
}

// open opens s and detects compression. It adds the number of bytes read from disk to read. When ctx ends, pending and
// later reads fail.
func (s source) open(ctx context.Context, stdin io.Reader, read *atomic.Int64) (*openFile, error) {
	f := &openFile{raw: &rawReader{read: read}}
	if s.path == Stdin {
		f.raw.r = &cancelableReader{stdin, ctx.Done(), make([]byte, rawBufferSize)}
	} else {
		file, err := s.openFile(ctx)
		if err != nil {
			return nil, pathError(s.path, err)
		}
		stop := context.AfterFunc(ctx, func() { _ = file.Close() })
		f.closers = append(f.closers, func() error { stop(); return file.Close() })
		f.raw.r = file
	}
	f.decompress()
	return f, nil
}

// Contents returns the decompressed contents of the file at path, or of stdin if path is [Stdin]. It returns an error
// if path is a directory or the contents exceed limit bytes.
func Contents(ctx context.Context, path string, stdin io.Reader, limit int64) (data []byte, err error) {
	sources, err := list([]string{path})
	if err != nil {
		return nil, err
	}
	if len(sources) != 1 || sources[0].listed {
		return nil, fmt.Errorf("read %s: it is a directory", path)
	}
	f, err := sources[0].open(ctx, stdin, new(atomic.Int64))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if data, err = io.ReadAll(io.LimitReader(f, limit+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: longer than %d bytes", path, limit)
	}
	return data, nil
}

func (s source) openFile(ctx context.Context) (*os.File, error) {
	if !s.pipe {
		return os.Open(s.path)
	}
	return unlessCanceled(ctx.Done(), func() (*os.File, error) { return os.Open(s.path) })
}

// decompress sets f.Reader, with a decompressor if the file starts with the magic number of gzip or zstd.
func (f *openFile) decompress() {
	buffered := bufio.NewReaderSize(f.raw, rawBufferSize)
	magic, _ := buffered.Peek(len(zstdMagic)) // Read returns the same error
	f.Reader = buffered
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		f.compressed = true
		z, err := gzip.NewReader(buffered)
		if err != nil {
			f.Reader = failedReader{err}
			return
		}
		z.Multistream(false)
		f.members = &members{from: buffered, current: z}
		f.Reader = f.members
	case bytes.HasPrefix(magic, zstdMagic):
		f.compressed = true
		z, err := zstd.NewReader(f.Reader, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			f.Reader = failedReader{err}
			return
		}
		f.Reader = z
		f.closers = append(f.closers, func() error { z.Close(); return nil })
	}
}

// members reads the contents of the members of a gzip file, one after the other. Any other bytes after a member are
// treated like the end of the file, because the members before them are complete.
type members struct {
	from     *bufio.Reader
	current  *gzip.Reader
	trailing bool // other bytes were found after a member
}

// Read implements [io.Reader].
func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.current.Read(p)
		switch {
		case n > 0 && errors.Is(err, io.EOF):
			return n, nil // the next Read returns io.EOF again
		case !errors.Is(err, io.EOF):
			return n, err
		}
		next, err := m.from.Peek(len(gzipMagic))
		switch {
		case bytes.Equal(next, gzipMagic):
		case err != nil && (len(next) == 0 || !errors.Is(err, io.EOF)):
			return 0, err
		default:
			m.trailing = true
			return 0, io.EOF
		}
		if err := m.current.Reset(m.from); err != nil {
			return 0, err
		}
		m.current.Multistream(false)
	}
}

// failedReader stands in for a file that can't be decompressed.
type failedReader struct{ err error }

// Read returns the error.
func (r failedReader) Read([]byte) (int, error) { return 0, r.err }

// Close closes the file.
func (f *openFile) Close() error {
	var err error
	for _, c := range slices.Backward(f.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// decompress returns the contents of data, a zstd frame. It returns an error if the contents exceed limit bytes.
func decompress(data []byte, limit int) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(data, nil)
}

// rawReader counts the bytes read and remembers the error, so that I/O errors can be told from invalid gzip data.
type rawReader struct {
	r    io.Reader
	read *atomic.Int64
	err  error
}

// Read implements [io.Reader].
func (r *rawReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.read.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
