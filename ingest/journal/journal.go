// Package journal stores acknowledged records on disk until they are no longer needed. It keeps their order and times
// of arrival, so reading them again is equivalent to receiving them again.
//
// When Append returns, its records survive a crash of the process and, with Options.Sync, of the machine. Records are
// numbered from 1 without gaps. A gap found on reading means that damage has destroyed records.
package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/trace"
)

// Kind is the kind of a record. It determines the format of the data.
type Kind byte

// Kinds of records. Their values are stored on disk.
const (
	Protobuf Kind = 1 // an export request of OTLP
	JSON     Kind = 2 // an export request of OTLP
	Epoch    Kind = 3 // an epoch ended; no data
	Change   Kind = 4 // another change that decisions depend on; see engine.Change
)

// Options configures a [Journal].
type Options struct {
	Dir  string
	Sync bool // whether Append waits for the disk, not only for the operating system
	Disk *pebbledb.Disk
	Log  *slog.Logger
	// See [pebbledb.Options].
	Files  int
	Memory int64
	GiveUp func(error)
}

// Record is one record of a journal, with its data uncompressed.
type Record struct {
	Seq  uint64
	At   trace.Nanos
	Kind Kind
	Data []byte
}

// Packed is a record with its data as [Pack] compresses it.
type Packed struct {
	Seq  uint64
	At   trace.Nanos
	Kind Kind
	Data []byte
}

// Journal is an open journal. It is safe for concurrent use, except that only one goroutine may call Add and Append.
type Journal struct {
	db    *pebbledb.DB
	batch *pebble.Batch
	next  atomic.Uint64 // number of the next record
	first atomic.Uint64 // lower bound on the number of the oldest record
	trims sync.Mutex    // held while Trim deletes records or Backup copies them
}

// Sizes for the database, in bytes. At full load, a memtable fills up in one or two seconds.
const (
	memTable = 32 << 20
	cache    = 8 << 20
)

// Open opens the journal in o.Dir, or creates it.
func Open(o Options) (*Journal, error) {
	db, err := pebbledb.Open(pebbledb.Options{
		Dir:      o.Dir,
		MemTable: memTable,
		Cache:    cache,
		Memory:   o.Memory,
		Files:    o.Files,
		Ordered:  true,
		Quick:    !o.Sync,
		Disk:     o.Disk,
		Log:      o.Log,
		GiveUp:   o.GiveUp,
	})
	if err != nil {
		return nil, err
	}
	j := &Journal{db: db, batch: db.NewBatch()}
	j.next.Store(1)
	if err := j.bounds(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	if db.Truncated > 0 {
		o.Log.Warn("the end of the journal was unreadable and has been moved", slog.Int64("bytes", db.Truncated),
			slog.String("to", db.Removed))
	}
	return j, nil
}

// bounds sets first and next from the records in the database. It returns an error if the database isn't a journal.
func (j *Journal) bounds() error {
	it, err := j.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	j.first.Store(1)
	if it.First() {
		if len(it.Key()) != keySize {
			return errors.Join(fmt.Errorf("open the journal: %w", pebbledb.ErrForeign), it.Close())
		}
		j.first.Store(number(it.Key()))
		j.next.Store(j.first.Load())
	}
	if it.Last() {
		j.next.Store(number(it.Key()) + 1)
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	return nil
}

// Continue makes the number of the next record at least last+1. Call it for a journal that has lost records with
// numbers up to last.
func (j *Journal) Continue(last uint64) { j.next.Store(max(j.next.Load(), last+1)) }

// Next returns the number of the next record.
func (j *Journal) Next() uint64 { return j.next.Load() }

// First returns a lower bound on the number of the oldest record.
func (j *Journal) First() uint64 { return j.first.Load() }

// Truncated returns the number of unreadable bytes that Open removed from the end of the journal.
func (j *Journal) Truncated() int64 { return j.db.Truncated }

// keySize is the size of a key: the number of the record, big-endian, so that keys are in order.
const keySize = 8

func key(seq uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, keySize), seq) }

func number(key []byte) uint64 {
	if len(key) != keySize {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// head is the size of the header of a record: kind and time of arrival.
const head = 1 + 8

// Pack appends data, compressed for [Journal.Add], to b.
func Pack(b, data []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, s2.MaxEncodedLen(len(data)))...)
	return b[:n+len(s2.Encode(b[n:], data))]
}

// Add adds a record, which the next call to Append writes, and returns the record's number. packed must come from
// [Pack] or be empty.
func (j *Journal) Add(at trace.Nanos, kind Kind, packed []byte) uint64 {
	seq := j.next.Add(1) - 1
	op := j.batch.SetDeferred(keySize, head+len(packed))
	binary.BigEndian.PutUint64(op.Key, seq)
	op.Value[0] = byte(kind)
	binary.LittleEndian.PutUint64(op.Value[1:], uint64(at))
	copy(op.Value[head:], packed)
	_ = op.Finish() // fails for indexed batches only
	return seq
}

// Append writes all records added since the last call. If it returns an error, it has discarded them, and their numbers
// will be reused.
func (j *Journal) Append() error {
	err := j.batch.Commit(pebble.Sync)
	if err != nil {
		j.next.Add(-uint64(j.batch.Count()))
		j.batch.Reset()
		return fmt.Errorf("append to the journal: %w", err)
	}
	j.batch.Reset()
	return nil
}

// Get returns the record with number seq. It stores the data in buf if there is room. It returns an error if there is
// no such record.
func (j *Journal) Get(seq uint64, buf []byte) (Record, error) {
	value, closer, err := j.db.Get(key(seq))
	if err != nil {
		return Record{}, fmt.Errorf("record %d of the journal: %w", seq, err)
	}
	r, err := decode(seq, value, buf)
	return r, errors.Join(err, closer.Close())
}

func decode(seq uint64, value, buf []byte) (Record, error) {
	if len(value) < head {
		return Record{}, fmt.Errorf("record %d of the journal has %d bytes", seq, len(value))
	}
	r := Record{Seq: seq, Kind: Kind(value[0]), At: trace.Nanos(binary.LittleEndian.Uint64(value[1:]))}
	if packed := value[head:]; len(packed) > 0 {
		n, err := s2.DecodedLen(packed)
		if err != nil || n > math.MaxInt32 {
			return Record{}, fmt.Errorf("record %d of the journal is damaged: %w", seq, err)
		}
		if r.Data, err = s2.Decode(buf, packed); err != nil {
			return Record{}, fmt.Errorf("record %d of the journal is damaged: %w", seq, err)
		}
	}
	return r, nil
}

// Read yields the records from number `from` on, in order. It skips damaged records, which leaves gaps in the numbers.
// The sequence ends after an error.
func (j *Journal) Read(from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for from < j.next.Load() {
			next, stopped, err := j.readFrom(from, yield)
			switch {
			case stopped:
				return
			case err == nil:
				return
			case !errors.Is(err, pebble.ErrCorruption):
				yield(Record{}, fmt.Errorf("read the journal: %w", err))
				return
			}
			from = j.afterDamage(next)
		}
	}
}

// readFrom yields records, starting at number `from`, until one is unreadable. next is the number after the last
// readable record. stopped reports whether yield returned false.
func (j *Journal) readFrom(from uint64, yield func(Record, error) bool) (next uint64, stopped bool, err error) {
	it, err := j.db.NewIter(&pebble.IterOptions{LowerBound: key(from)})
	if err != nil {
		return from, false, err
	}
	defer func() {
		if e := it.Close(); err == nil {
			err = e
		}
	}()
	next = from
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return next, false, err
		}
		seq := number(it.Key())
		next = seq + 1
		r, err := decode(seq, value, nil)
		if err != nil {
			continue // a gap
		}
		if !yield(r, nil) {
			return next, true, nil
		}
	}
	return next, false, it.Error()
}

// afterDamage returns the number of a readable record after `from`, or the number of the next new record if it doesn't
// find any. It doubles its steps, because damage affects blocks of a few dozen records or whole files. It may therefore
// skip readable records.
func (j *Journal) afterDamage(from uint64) uint64 {
	for step := uint64(1); from+step < j.next.Load(); step *= 2 {
		if _, err := j.Get(from+step, nil); err == nil {
			return from + step
		}
	}
	return j.next.Load()
}

// Since returns the number of the first record, starting at number `from`, that arrived at or after `at`, or the number
// of the next new record if there is no such record. It may instead return the number of a missing record just before
// that record. The times of records must be ascending.
func (j *Journal) Since(at trace.Nanos, from uint64) (seq uint64, err error) {
	low, high := from, j.next.Load()
	for low < high { // records before low are older, high isn't
		mid := low + (high-low)/2
		next, came, err := j.firstFrom(mid)
		switch {
		case err != nil:
			return from, err
		case next == 0 || came >= at:
			high = mid
		default:
			low = next + 1
		}
	}
	return low, nil
}

// firstFrom returns the number and time of the first existing record, starting at number `from`, or zeros if there is
// no such record.
func (j *Journal) firstFrom(from uint64) (seq uint64, at trace.Nanos, err error) {
	it, err := j.db.NewIter(&pebble.IterOptions{LowerBound: key(from)})
	if err != nil {
		return 0, 0, fmt.Errorf("read the journal: %w", err)
	}
	if it.First() {
		value, failed := it.ValueAndErr()
		if err = failed; err == nil && len(value) >= head {
			seq, at = number(it.Key()), trace.Nanos(binary.LittleEndian.Uint64(value[1:]))
		}
	}
	if err := errors.Join(err, it.Error(), it.Close()); err != nil {
		return 0, 0, fmt.Errorf("read the journal: %w", err)
	}
	return seq, at, nil
}

// Trim deletes all records with numbers less than `before`.
func (j *Journal) Trim(ctx context.Context, before uint64) error {
	j.trims.Lock()
	defer j.trims.Unlock()
	if first := j.first.Load(); before > first {
		if err := j.db.Excise(ctx, key(first), key(before)); err != nil {
			return fmt.Errorf("trim the journal: %w", err)
		}
		j.first.Store(before)
	}
	return nil
}

// ErrNotLeading is returned by a shared journal if another process may lead by now.
var ErrNotLeading = errors.New("this process does not lead any more")

// Follow returns nil at once, because j belongs to this process alone.
func (j *Journal) Follow(context.Context, func(Record) error) error { return nil }

// Beat does nothing, because no other process waits for j.
func (j *Journal) Beat() error { return nil }

// Leader returns "", because j belongs to this process alone.
func (j *Journal) Leader() string { return "" }

// Stats describes the size of a journal.
type Stats struct {
	Bytes uint64 // size on disk in bytes, including the log
	Syncs int64  // number of syncs since the journal was opened
}

// Stats returns the current size of j.
func (j *Journal) Stats() Stats {
	m := j.db.Metrics()
	return Stats{Bytes: m.DiskSpaceUsage(), Syncs: j.db.Syncs()}
}

// Close closes the journal. It discards records that were added but not appended.
func (j *Journal) Close() error {
	return errors.Join(j.batch.Close(), j.db.Close())
}
