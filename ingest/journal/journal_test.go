package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/trace"
)

func open(t testing.TB, dir string, sync bool) *Journal {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	j, err := Open(Options{Dir: dir, Sync: sync, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func record(n uint64) []byte { return bytes.Repeat(fmt.Appendf(nil, "record %d ", n), int(n%50)) }

// fill appends records, several at a time, until the number last is used.
func fill(t testing.TB, j *Journal, last uint64) {
	t.Helper()
	for j.Next() <= last {
		for range 3 {
			n := j.Next()
			if seq := j.Add(trace.Nanos(n*10), Protobuf, Pack(nil, record(n))); seq != n {
				t.Fatalf("record got number %d, want %d", seq, n)
			}
		}
		if err := j.Append(); err != nil {
			t.Fatal(err)
		}
	}
}

// read checks the data of the readable records with the number `from` and higher, and returns their numbers.
func read(t testing.TB, j *Journal, from uint64) (seqs []uint64) {
	t.Helper()
	for r, err := range j.Read(from) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != Protobuf || r.At != trace.Nanos(r.Seq*10) || !bytes.Equal(r.Data, record(r.Seq)) {
			t.Fatalf("record %d differs from the appended one", r.Seq)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

func checkRange(t testing.TB, seqs []uint64, first, last uint64) {
	t.Helper()
	if len(seqs) == 0 || seqs[0] != first || seqs[len(seqs)-1] != last || uint64(len(seqs)) != last-first+1 {
		t.Fatalf("read %d records %v…, want %d to %d", len(seqs), seqs[:min(3, len(seqs))], first, last)
	}
}

func TestReadAgain(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, true)
	fill(t, j, 300)
	checkRange(t, read(t, j, 1), 1, 300)
	checkRange(t, read(t, j, 100), 100, 300)
	if r, err := j.Get(42, nil); err != nil || !bytes.Equal(r.Data, record(42)) {
		t.Fatalf("Get(42) = %v, %v", r, err)
	}
	if err := j.Trim(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	checkRange(t, read(t, j, 1), 200, 300)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, false)
	if j.First() != 200 || j.Next() != 301 || j.Truncated() != 0 {
		t.Fatalf("reopened: first %d, next %d, truncated %d", j.First(), j.Next(), j.Truncated())
	}
	fill(t, j, 400)
	if err := j.Trim(t.Context(), j.Next()); err != nil {
		t.Fatal(err)
	}
	last := j.Next() - 1
	if n := len(read(t, j, 1)); n != 0 {
		t.Fatalf("%d records left of none", n)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, false)
	defer j.Close()
	j.Continue(last)
	if j.Next() != last+1 {
		t.Fatalf("an empty journal continues with %d, want %d", j.Next(), last+1)
	}
}

// Acknowledged records survive a crash at any time, regardless of how much more of the log is on disk.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, false)
	defer j.Close()
	fill(t, j, 300)
	acked := j.Next() - 1
	for i := range 5 {
		again := crashed(t, dir, func(log []byte) []byte { return append(log, make([]byte, i*1000)...) })
		checkRange(t, read(t, again, 1), 1, acked)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A log that is truncated or has a flipped bit keeps all records before the damage, reports the bytes removed, and
// accepts new records.
func TestDamagedTail(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, false)
	defer j.Close()
	fill(t, j, 300)
	r := rand.New(rand.NewPCG(1, 2))
	cuts, flips := 0, 0
	for i := range 60 {
		// A subtest deletes its directory, whose ballast would fill a disk sixty times over.
		t.Run("", func(t *testing.T) {
			again := crashed(t, dir, func(log []byte) []byte {
				at := r.IntN(len(log))
				if i%2 == 0 {
					return log[:at]
				}
				log[at] ^= 1 << r.IntN(8)
				flips++
				return log
			})
			seqs := read(t, again, 1)
			if len(seqs) > 0 {
				checkRange(t, seqs, 1, uint64(len(seqs)))
			}
			if again.Truncated() > 0 {
				cuts++
			}
			if again.Next() != uint64(len(seqs))+1 {
				t.Fatalf("%d records, next is %d", len(seqs), again.Next())
			}
			fill(t, again, again.Next()+5)
			checkRange(t, read(t, again, 1), 1, again.Next()-1)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if cuts < flips/2 {
		t.Errorf("%d bits flipped, but truncation reported %d times", flips, cuts)
	}
}

// crashed copies the files in dir, as after a crash, changes the log with change, and opens the copy.
func crashed(t *testing.T, dir string, change func(log []byte) []byte) *Journal {
	t.Helper()
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "ballast" || f.Name() == "LOCK" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(f.Name()) == ".log" && len(data) > 0 {
			data = change(data)
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, to, false)
}

// The numbers of records that Append couldn't write are reused.
func TestFailedAppend(t *testing.T) {
	j := open(t, t.TempDir(), false)
	defer j.Close()
	fill(t, j, 3)
	next, batch := j.Next(), j.batch
	j.batch = readOnly(t).NewBatch()
	for range 2 {
		j.Add(1, Protobuf, nil)
	}
	if err := j.Append(); !errors.Is(err, pebble.ErrReadOnly) {
		t.Fatalf("a database that is read-only: %v", err)
	}
	if err := j.batch.Close(); err != nil {
		t.Fatal(err)
	}
	if j.Next() != next {
		t.Errorf("the next record is %d, want %d", j.Next(), next)
	}
	j.batch = batch
	fill(t, j, 6)
	checkRange(t, read(t, j, 1), 1, 6)
}

// readOnly returns a database that rejects commits.
func readOnly(t *testing.T) *pebble.DB {
	t.Helper()
	options := &pebble.Options{FS: vfs.NewMem()}
	db, err := pebble.Open("", options)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	options.ReadOnly = true
	if db, err = pebble.Open("", options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Since returns the first of several records with the same time.
func TestSince(t *testing.T) {
	j := open(t, t.TempDir(), false)
	defer j.Close()
	for _, at := range []trace.Nanos{10, 10, 20, 20, 20, 30} {
		j.Add(at, Epoch, nil)
	}
	if err := j.Append(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at         trace.Nanos
		from, want uint64
	}{
		{9, 1, 1},
		{10, 1, 1},
		{11, 1, 3},
		{20, 1, 3},
		{20, 3, 3},
		{20, 4, 4},
		{21, 1, 6},
		{30, 1, 6},
		{31, 1, 7},
		{10, 7, 7},
	} {
		if got, err := j.Since(c.at, c.from); got != c.want || err != nil {
			t.Errorf("Since(%d, %d) = %d, %v, want %d", c.at, c.from, got, err, c.want)
		}
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, false)
	defer j.Close()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Fatal("two journals in one directory")
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			j := open(b, b.TempDir(), sync)
			defer j.Close()
			r := rand.New(rand.NewPCG(1, 2))
			data := make([]byte, 180<<10) // 512 spans of 350 bytes, half of them random
			for i := range data {
				if i%2 == 0 {
					data[i] = byte(r.Uint32())
				}
			}
			packed := Pack(nil, data)
			b.SetBytes(int64(len(data)))
			began := time.Now()
			for b.Loop() {
				for range 4 {
					j.Add(1, Protobuf, packed)
				}
				if err := j.Append(); err != nil {
					b.Fatal(err)
				}
				if j.Next()-j.First() > 2000 {
					if err := j.Trim(b.Context(), j.Next()-1000); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(j.Next())*512/time.Since(began).Seconds()/1e6, "Mspans/s")
			b.ReportMetric(float64(j.Stats().Bytes)/1e6, "MB-on-disk")
		})
	}
}
