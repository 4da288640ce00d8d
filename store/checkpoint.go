package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Checkpoint is the state after the journal record Seq, from which a restart continues.
type Checkpoint struct {
	Seq    uint64      // sequence number of the last record covered by State
	At     trace.Nanos // time of that record
	Oldest uint64      // oldest record that a restart needs, because it may contain spans of traces missing from State
	State  []byte
	Closed []Closed // closed traces that may have spans in records from Oldest on; oldest first
}

// Closed holds hashes of the IDs of traces that closed between two checkpoints.
type Closed struct {
	At     trace.Nanos
	Hashes []uint64
}

// pieceSize is the size of a piece of the state in bytes. Each piece is one value in the database.
const pieceSize = 1 << 20

// ErrCheckpoint is wrapped by the error that Load returns if the last checkpoint is damaged.
var ErrCheckpoint = fmt.Errorf("%w: the checkpoint is damaged", codec.ErrCorrupt)

// head is a checkpoint without its state and its closed traces. It is stored as one value in the database.
type head struct {
	seq    uint64
	at     trace.Nanos
	oldest uint64
	pieces uint64 // number of pieces of the state
	first  uint64 // number of the first piece
}

func (h *head) append(b []byte) []byte {
	return codec.AppendUvarints(b, h.seq, uint64(h.at), h.oldest, h.pieces, h.first)
}

func decodeHead(b []byte) (head, error) {
	r := codec.NewReader(b)
	h := head{
		seq:    r.Uvarint(),
		at:     trace.Nanos(r.Uvarint()),
		oldest: r.Uvarint(),
		pieces: r.Uvarint(),
		first:  r.Uvarint(),
	}
	if r.Bad() || r.Len() > 0 || h.first+h.pieces < h.first {
		return head{}, ErrCheckpoint
	}
	return h, nil
}

// closedKey returns the key of element i of Checkpoint.Closed, with time at. The key consists of the first byte, the
// time and the low 16 bits of i.
func closedKey(at trace.Nanos, i int) []byte {
	return append(numbered(keyClosed, uint64(at)), byte(i), byte(i>>8))
}

const closedKeySize = 1 + 8 + 2

func decodeClosed(key, value []byte) (Closed, error) {
	r := codec.NewReader(value)
	if len(key) != closedKeySize || r.Len()%8 != 0 {
		return Closed{}, ErrCheckpoint
	}
	x := Closed{At: trace.Nanos(binary.BigEndian.Uint64(key[1:]))}
	for r.Len() > 0 {
		x.Hashes = append(x.Hashes, r.Word())
	}
	return x, nil
}

// Checkpoints keeps the last checkpoint and the recently closed traces.
type Checkpoints struct{ db database }

// Save replaces the last checkpoint with next. next.Closed must contain only the traces closed since the last
// checkpoint. Save adds them to the stored closed traces, and deletes stored traces that closed before forget. It must
// not be called concurrently.
//
// The pieces of the state become durable one by one, next to the pieces of the last checkpoint, before the head refers
// to them. One large commit would fill the disk's queue, and the journal would have to wait for all of it.
func (c Checkpoints) Save(next *Checkpoint, forget trace.Nanos) error {
	last, err := c.head()
	if err != nil && !errors.Is(err, ErrCheckpoint) { // a damaged checkpoint is replaced
		return err
	}
	h := head{seq: next.Seq, at: next.At, oldest: next.Oldest, first: last.first + last.pieces}
	if err := c.forgetPieces(h.first, math.MaxUint64); err != nil { // left over from a crash
		return err
	}
	for piece := range compressed(next.State) {
		if err := c.db.Set(numbered(keyState, h.first+h.pieces), piece, pebble.Sync); err != nil {
			return errors.Join(during("save checkpoint", err), c.forgetPieces(h.first, math.MaxUint64))
		}
		h.pieces++
	}
	if err := c.refer(&h, next.Closed, forget); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return c.forgetPieces(0, h.first)
}

// compressed yields the pieces of a compressed block that contains state. It compresses a few pieces at a time, because
// state may be large. A piece is valid until the next one is yielded.
func compressed(state []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buffer := binary.AppendUvarint(nil, uint64(len(state)))
		var block []byte
		for part := range slices.Chunk(state, 4*pieceSize) {
			block = s2.Encode(block[:cap(block)], part)
			_, head := binary.Uvarint(block) // blocks are concatenated without their lengths; see [s2.ConcatBlocks]
			buffer = append(buffer, block[head:]...)
			for len(buffer) >= pieceSize {
				if !yield(buffer[:pieceSize]) {
					return
				}
				buffer = append(buffer[:0], buffer[pieceSize:]...)
			}
		}
		if len(buffer) > 0 {
			yield(buffer)
		}
	}
}

// refer makes h the head of the last checkpoint, adds closed to the closed traces, and deletes traces that closed
// before forget.
func (c Checkpoints) refer(h *head, closed []Closed, forget trace.Nanos) error {
	return c.db.commit(pebble.Sync, func(b *pebble.Batch) error {
		if err := b.Set([]byte{keyCheckpoint}, h.append(nil), nil); err != nil {
			return err
		}
		for i, x := range closed {
			if len(x.Hashes) == 0 {
				continue
			}
			if err := b.Set(closedKey(x.At, i), codec.AppendWords(nil, x.Hashes...), nil); err != nil {
				return err
			}
		}
		return b.DeleteRange([]byte{keyClosed}, numbered(keyClosed, uint64(max(0, forget))), nil)
	})
}

// forgetPieces deletes the state pieces with numbers in [from, to).
func (c Checkpoints) forgetPieces(from, to uint64) error {
	return c.db.DeleteRange(numbered(keyState, from), numbered(keyState, to), pebble.NoSync)
}

// Size returns the size of the last checkpoint's state in bytes, rounded up to whole pieces, or 0 if there is no
// checkpoint.
func (c Checkpoints) Size() (uint64, error) {
	h, err := c.head()
	return h.pieces * pieceSize, err
}

// Oldest returns the number of the first journal record that the last checkpoint needs, or 0 if there is no checkpoint.
func (c Checkpoints) Oldest() (uint64, error) {
	h, err := c.head()
	return h.oldest, err
}

// head returns the head of the last checkpoint. It is zero if there is no checkpoint.
func (c Checkpoints) head() (head, error) {
	b, err := c.db.get([]byte{keyCheckpoint})
	if b == nil || err != nil {
		return head{}, err
	}
	return decodeHead(b)
}

// Load returns the last checkpoint, or nil if there isn't one. It returns an error wrapping [ErrCheckpoint] if the
// checkpoint is damaged.
func (c Checkpoints) Load() (*Checkpoint, error) {
	b, err := c.db.get([]byte{keyCheckpoint})
	if b == nil || err != nil {
		return nil, err
	}
	h, err := decodeHead(b)
	if err != nil {
		return nil, err
	}
	last := &Checkpoint{Seq: h.seq, At: h.at, Oldest: h.oldest}
	var packed []byte
	pieces := uint64(0)
	from, to := numbered(keyState, h.first), numbered(keyState, h.first+h.pieces)
	err = c.db.between(from, to, func(_, value []byte) error {
		packed = append(packed, value...)
		pieces++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	if pieces != h.pieces {
		return nil, fmt.Errorf("%w: %d pieces of %d", ErrCheckpoint, pieces, h.pieces)
	}
	if last.State, err = decompress(packed); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	err = c.db.each([]byte{keyClosed}, func(key, value []byte) error {
		x, err := decodeClosed(key, value)
		last.Closed = append(last.Closed, x)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	return last, nil
}
