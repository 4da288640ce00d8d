package spool

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// numbered returns an observation with a packed size of about 10 KiB.
func numbered(i int) *observation.Observation {
	o := &observation.Observation{
		Trace:    trace.ID{0: byte(i), 1: byte(i >> 8)},
		Root:     1,
		Start:    trace.Nanos(i),
		Duration: 5,
	}
	for k := range 300 {
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:   trace.Context(k + 1),
			Op:        1,
			Count:     1,
			Total:     1 << 60,
			Self:      1 << 60,
			Exclusive: 1 << 60,
		})
	}
	return o
}

func fill(t *testing.T, s *Spool, n int) {
	t.Helper()
	for i := range n {
		if err := s.Add(numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// read checks the first observations, at most limit, and returns their starts.
func read(t *testing.T, s *Spool, limit int) (starts []trace.Nanos) {
	t.Helper()
	for o, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		if want := numbered(int(o.Start)); o.Trace != want.Trace || !slices.Equal(o.Contexts, want.Contexts) {
			t.Fatalf("observation %d is read as %v", o.Start, o)
		}
		starts = append(starts, o.Start)
		if len(starts) == limit {
			break
		}
	}
	return starts
}

// For any memory limit, all observations can be read in order and repeatedly, after an incomplete read, and between
// additions.
func TestSpool(t *testing.T) {
	const n = 300 // about 3 MiB
	for _, limit := range []int{0, 1 << 20, 1 << 30} {
		dir := t.TempDir()
		s := New(dir, limit)
		fill(t, s, n)
		if spilled := s.file != nil; spilled != (limit < 1<<30) {
			t.Errorf("limit %d: spilled %v", limit, spilled)
		}
		if got := read(t, s, 5); len(got) != 5 {
			t.Errorf("limit %d: stopped after %d", limit, len(got))
		}
		fill(t, s, n)
		for range 2 {
			got := read(t, s, -1)
			if len(got) != 2*n {
				t.Fatalf("limit %d: %d of %d observations read", limit, len(got), 2*n)
			}
			for i, start := range got {
				if start != trace.Nanos(i%n) {
					t.Fatalf("limit %d: observation %d is number %d", limit, i, start)
				}
			}
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("the temporary file has a name: %v, %v", files, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Observations are read by rank, and in the order they were added if their ranks are equal.
func TestInOrder(t *testing.T) {
	const n = 300
	s := New("", math.MaxInt)
	fill(t, s, n)
	var want []trace.Nanos
	for rank := range 7 {
		for i := range n {
			if -i%7+6 == rank {
				want = append(want, trace.Nanos(i))
			}
		}
	}
	for range 2 { // it can be repeated
		next, seen := 0, 0
		for rank, o := range s.InOrder(func(o *observation.Observation) int {
			if o.Start != trace.Nanos(next) {
				t.Fatalf("observation %d is ranked at %d", o.Start, next)
			}
			next++
			return -int(o.Start)%7 + 6
		}) {
			if o.Start != want[seen] || rank != -int(o.Start)%7+6 {
				t.Fatalf("observation %d has rank %d at %d, want %d", o.Start, rank, seen, want[seen])
			}
			if seen++; seen == n/2 && next == n {
				break
			}
		}
		if seen != n/2 {
			t.Errorf("%d observations", seen)
		}
	}
}

// A decoded Spool has the same observations and uses as much memory.
func TestDecode(t *testing.T) {
	const n = 300 // about 3 MiB
	s := New("", 1<<30)
	fill(t, s, n)
	got, err := Decode(s.AppendBinary(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes() != s.Bytes() {
		t.Errorf("a decoded spool takes %d bytes, want %d", got.Bytes(), s.Bytes())
	}
	if starts := read(t, got, -1); !slices.Equal(starts, read(t, s, -1)) || len(starts) != n {
		t.Errorf("a decoded spool contains %d observations, want %d", len(starts), n)
	}
}

func TestMissingDirectory(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "missing"), 0)
	var err error
	for i := 0; err == nil && i < 300; i++ {
		err = s.Add(numbered(i))
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A full disk and a truncated file cause errors.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no device that is always full")
	}
	s := New(t.TempDir(), 0)
	s.spillTo(full)
	for i := 0; err == nil && i < 600; i++ {
		err = s.Add(numbered(i))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full disk: error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestTruncatedFile(t *testing.T) {
	s := New(t.TempDir(), 0)
	fill(t, s, 400)
	if err := s.file.Truncate(s.written - 1); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range s.All() {
		last = err
	}
	if last == nil {
		t.Error("observations are missing without an error")
	}
}

// An observation that can't be decoded ends the sequence with an error, after the observations before it.
func TestDamaged(t *testing.T) {
	for _, limit := range []int{0, 1 << 30} {
		s := New(t.TempDir(), limit)
		fill(t, s, 300)
		if limit == 0 && s.file == nil {
			t.Fatal("nothing was spilled")
		}
		chunk := &s.chunks[len(s.chunks)-1]
		*chunk = (*chunk)[:len(*chunk)-1]
		read := 0
		var last error
		for _, err := range s.All() {
			if last != nil {
				t.Fatal("the sequence goes on after an error")
			}
			if last = err; err == nil {
				read++
			}
		}
		if !errors.Is(last, codec.ErrCorrupt) || read != 299 || !errors.Is(s.check(), codec.ErrCorrupt) {
			t.Errorf("limit %d: %d observations and error %v, want 299 and %v", limit, read, last, codec.ErrCorrupt)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
