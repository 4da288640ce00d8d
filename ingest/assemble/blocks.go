package assemble

import (
	"encoding/binary"
	"math"

	"github.com/sibyl-trace/sibyl/trace"
)

// blocks stores the spans of open traces in blocks of equal size. Each trace has its own chain of blocks, and the
// blocks can be reused as soon as the trace is closed. The memory contains no pointers, so the cost of garbage
// collection does not grow with the number of open spans.
//
// A block starts with the number of the next block. Then come entries, each with a byte for its kind and a fixed number
// of bytes for that kind. Entries never span two blocks.
type blocks struct {
	chunks [][]byte // each of chunkBlocks blocks
	free   []int32  // blocks that are in no chain
	used   int32    // number of blocks ever allocated
}

const (
	blockSize   = 512
	chunkBlocks = 2048 // a chunk is 1 MiB
	blockHead   = 4    // number of the next block
)

// entry is the kind of an entry in a block.
type entry byte

const (
	entryEnd    entry = iota // end of this block
	entryRecord              // number of the record that contains the following spans
	entrySpan
	entryAttr // of the preceding span
	entryJoin // of the preceding span
)

// Sizes of entries, including the byte for their kind.
const (
	recordEntry = 1 + 8
	spanEntry   = 1 + spanSize
	attrEntry   = 1 + 3*8 + 1
	joinEntry   = 1 + 8 + 1
)

// noBlock stands for the number of the next block in the last block of a chain.
const noBlock = -1

// tail is the end of a chain.
type tail struct {
	block int32
	at    int32 // number of bytes used in the block
}

// live returns the total size in bytes of the blocks that are in chains.
func (b *blocks) live() int64 { return int64(int(b.used)-len(b.free)) * blockSize }

func (b *blocks) bytes(n int32) []byte {
	at := int(n%chunkBlocks) * blockSize
	return b.chunks[n/chunkBlocks][at : at+blockSize : at+blockSize]
}

// chain starts a chain with an empty block and returns its end.
func (b *blocks) chain() tail {
	var n int32
	if last := len(b.free) - 1; last >= 0 {
		n, b.free = b.free[last], b.free[:last]
	} else {
		if int(b.used) == len(b.chunks)*chunkBlocks {
			b.chunks = append(b.chunks, make([]byte, chunkBlocks*blockSize))
		}
		n = b.used
		b.used++
	}
	block := b.bytes(n)
	binary.LittleEndian.PutUint32(block, math.MaxUint32) // noBlock
	block[blockHead] = byte(entryEnd)
	return tail{n, blockHead}
}

// room appends an entry of n bytes to the chain that ends at t, advances t, and returns the entry's bytes for the
// caller to fill in.
func (b *blocks) room(t *tail, n int32) []byte {
	if t.at+n > blockSize {
		next := b.chain()
		full := b.bytes(t.block)
		binary.LittleEndian.PutUint32(full, uint32(next.block))
		if t.at < blockSize {
			full[t.at] = byte(entryEnd)
		}
		*t = next
	}
	block := b.bytes(t.block)
	entry := block[t.at : t.at+n]
	t.at += n
	if t.at < blockSize {
		block[t.at] = byte(entryEnd)
	}
	return entry
}

func (b *blocks) putRecord(t *tail, record uint64) {
	e := b.room(t, recordEntry)
	e[0] = byte(entryRecord)
	binary.LittleEndian.PutUint64(e[1:], record)
}

func (b *blocks) putSpan(t *tail, s *trace.Span) {
	e := b.room(t, spanEntry)
	e[0] = byte(entrySpan)
	putSpan(e[1:], s)
}

func (b *blocks) putAttr(t *tail, a *trace.Attr) {
	e := b.room(t, attrEntry)
	le := binary.LittleEndian
	e[0] = byte(entryAttr)
	le.PutUint64(e[1:], uint64(a.Key))
	le.PutUint64(e[9:], uint64(a.Text))
	le.PutUint64(e[17:], math.Float64bits(a.Number))
	e[25] = flag(a.Numeric)
}

func (b *blocks) putJoin(t *tail, j *trace.Join) {
	e := b.room(t, joinEntry)
	e[0] = byte(entryJoin)
	binary.LittleEndian.PutUint64(e[1:], uint64(j.Linked))
	e[9] = flag(j.Message)
}

// walk calls f with the kind and body of each entry in the chain that starts at first.
func (b *blocks) walk(first int32, f func(kind entry, body []byte)) {
	for n := first; n != noBlock; {
		block := b.bytes(n)
		for at := blockHead; at < blockSize; {
			kind := entry(block[at])
			size := entrySizes[kind]
			if kind == entryEnd {
				break
			}
			f(kind, block[at+1:at+size])
			at += size
		}
		n = int32(binary.LittleEndian.Uint32(block))
	}
}

var entrySizes = [...]int{entryRecord: recordEntry, entrySpan: spanEntry, entryAttr: attrEntry, entryJoin: joinEntry}

// read appends the spans in the chain that starts at first to t, and the numbers of their records to records. It
// returns the extended slice.
func (b *blocks) read(first int32, t *trace.Trace, records []uint64) []uint64 {
	le := binary.LittleEndian
	b.walk(first, func(kind entry, e []byte) {
		span := int32(len(t.Spans) - 1)
		switch kind {
		case entryRecord:
			records = append(records, le.Uint64(e))
		case entrySpan:
			t.Spans = append(t.Spans, getSpan(e))
		case entryAttr:
			t.Attrs = append(t.Attrs, trace.Attr{
				Key: trace.Symbol(le.Uint64(e)), Text: trace.Symbol(le.Uint64(e[8:])),
				Number: math.Float64frombits(le.Uint64(e[16:])), Span: span, Numeric: e[24] != 0,
			})
		case entryJoin:
			t.Joins = append(t.Joins, trace.Join{Span: span, Linked: trace.SpanID(le.Uint64(e)), Message: e[8] != 0})
		case entryEnd:
		}
	})
	return records
}

// release frees the blocks of the chain that starts at first.
func (b *blocks) release(first int32) {
	for n := first; n != noBlock; {
		next := int32(binary.LittleEndian.Uint32(b.bytes(n)))
		b.free = append(b.free, n)
		n = next
	}
}
