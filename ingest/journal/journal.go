// Package journal keeps what was acknowledged until nothing needs it any more: records in the order in which they came, each with
// its time of arrival, so that reading them again is as good as having received them again.
//
// What is appended survives the process, and with Options.Sync the machine, when Append returns. Records are numbered from 1 without
// gaps; a gap that is found is what was lost by damage, and counted.
package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/trace"
)

// Kind says what a record is.
type Kind byte

// Kinds of records. Their numbers are on disk.
const (
	Protobuf Kind = 1 // an export request of OTLP
	JSON     Kind = 2 // the same
	Epoch    Kind = 3 // an epoch ended; no data
	Change   Kind = 4 // something else changed that decisions depend on; see engine.Change
)

// Options choose where a journal is, and how safe.
type Options struct {
	Dir   string
	Sync  bool // Append returns when the disk has it, not when the system has it
	Files int  // see [pebbledb.Options]
	Disk  *pebbledb.Disk
	Log   *slog.Logger

	GiveUp func(error) // see [pebbledb.Options]
}

// Record is one record. Data is as it was appended.
type Record struct {
	Seq  uint64
	At   trace.Nanos
	Kind Kind
	Data []byte
}

// Journal is safe for concurrent use, but for Append, which has one caller.
type Journal struct {
	db    *pebbledb.DB
	batch *pebble.Batch
	next  atomic.Uint64 // number of the next record
	first atomic.Uint64 // number of the oldest record that may still be there
}

// memTable is how much is collected before it becomes a file: a second or two at full load.
const memTable = 32 << 20

// Open opens or makes the journal in a directory.
func Open(o Options) (*Journal, error) {
	db, err := pebbledb.Open(pebbledb.Options{
		Dir: o.Dir, MemTable: memTable, Cache: 8 << 20, Files: o.Files, Ordered: true, Quick: !o.Sync, Disk: o.Disk,
		Log: o.Log, GiveUp: o.GiveUp,
	})
	if err != nil {
		return nil, err
	}
	j := &Journal{db: db, batch: db.NewBatch()}
	j.next.Store(1)
	if err := j.bounds(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	if db.Cut > 0 {
		o.Log.Warn("the end of the journal could not be read and was cut off", slog.Int64("bytes", db.Cut))
	}
	return j, nil
}

// bounds finds the first and the last record.
func (j *Journal) bounds() error {
	it, err := j.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	j.first.Store(1)
	if it.First() {
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

// Continue makes numbers go on after last at least, where records up to there are known to have been and are gone.
func (j *Journal) Continue(last uint64) { j.next.Store(max(j.next.Load(), last+1)) }

// Next returns the number that the next record gets.
func (j *Journal) Next() uint64 { return j.next.Load() }

// First returns the number of the oldest record that may still be there.
func (j *Journal) First() uint64 { return j.first.Load() }

// Cut returns how many bytes could not be read when the journal was opened, and are gone.
func (j *Journal) Cut() int64 { return j.db.Cut }

// keySize is the size of a key: the number of the record, big-endian, so that keys are in order.
const keySize = 8

func key(seq uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, keySize), seq) }

func number(key []byte) uint64 {
	if len(key) != keySize {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// head is what stands before the data: kind and time of arrival.
const head = 1 + 8

// Pack appends data as [Journal.Add] wants it, which compresses it, to b.
func Pack(b, data []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, s2.MaxEncodedLen(len(data)))...)
	return b[:n+len(s2.Encode(b[n:], data))]
}

// Add adds a record to those that the next Append writes, and returns its number. Data was made by [Pack], or is empty.
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

// Append writes what was added. On an error nothing of it was.
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

// Get returns a record, whose data lie in buf if that has room for them.
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

// Read yields the records from the given number on, in order. A record that is damaged is left out; what is missing shows as a gap in the
// numbers. An error is the last thing that is yielded.
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

// readFrom yields records until one cannot be read, and returns the number after the last that could.
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

// afterDamage returns the number of a record after from that can be read again, or that of the next record to come. Damage is of
// blocks, some dozen records at most, or of files: steps grow.
func (j *Journal) afterDamage(from uint64) uint64 {
	for step := uint64(1); from+step < j.next.Load(); step *= 2 {
		if _, err := j.Get(from+step, nil); err == nil {
			return from + step
		}
	}
	return j.next.Load()
}

// Since returns the number of the first record, from the given one on, that came at or after a time; that of the next record to come if all
// came before. Times ascend.
func (j *Journal) Since(at trace.Nanos, from uint64) (seq uint64, err error) {
	low, high := from, j.next.Load()
	for low < high { // records before low are older, high is not
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

// firstFrom returns the number and the time of the first record from a number on that is there; 0 if there is none.
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

// Trim forgets all records before the given number.
func (j *Journal) Trim(ctx context.Context, before uint64) error {
	if first := j.first.Load(); before > first {
		if err := j.db.Excise(ctx, key(first), key(before)); err != nil {
			return fmt.Errorf("trim the journal: %w", err)
		}
		j.first.Store(before)
	}
	return nil
}

// Stats says how much a journal takes.
type Stats struct {
	Bytes   uint64 // on disk, the log included
	Records uint64
	Syncs   int64 // since it was opened
}

// Stats returns how much j takes.
func (j *Journal) Stats() Stats {
	m := j.db.Metrics()
	return Stats{Bytes: m.DiskSpaceUsage(), Records: j.next.Load() - j.first.Load(), Syncs: j.db.Syncs()}
}

// Close closes the journal. What was added and not appended is lost.
func (j *Journal) Close() error {
	return errors.Join(j.batch.Close(), j.db.Close())
}
