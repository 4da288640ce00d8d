package assemble

import (
	"encoding/binary"
	"math"

	"github.com/sibyl-trace/sibyl/trace"
)

// blocks holds the spans of open traces in blocks of equal size, each trace a chain of its own, so that what a closed trace took is free
// for the next one at once. The memory has no pointers: the garbage collector has nothing to follow however many spans are open.
//
// A block is the number of the next one and then entries: a byte that says what the entry is, and its fixed number of bytes. No entry
// lies in two blocks.
type blocks struct {
	chunks [][]byte // of chunkBlocks blocks each
	free   []int32  // blocks that belong to no chain
	used   int32    // blocks that ever belonged to one
}

const (
	blockSize   = 512
	chunkBlocks = 2048 // a chunk is 1 MiB
	blockHead   = 4    // number of the next block
)

// entry says what an entry in a block is.
type entry byte

const (
	entryEnd    entry = iota // nothing more in this block
	entryRecord              // the spans after it came with the record of this number
	entrySpan
	entryAttr // of the span before it
	entryJoin // of the span before it
)

// Sizes of entries, the byte that says what they are included.
const (
	recordEntry = 1 + 8
	spanEntry   = 1 + spanSize
	attrEntry   = 1 + 3*8 + 1
	joinEntry   = 1 + 8
)

// noBlock ends a chain.
const noBlock = -1

// tail is where a chain grows.
type tail struct {
	block int32
	at    int32 // bytes used in it
}

// live returns the bytes of blocks that belong to a chain.
func (b *blocks) live() int64 { return int64(int(b.used)-len(b.free)) * blockSize }

func (b *blocks) bytes(n int32) []byte {
	at := int(n%chunkBlocks) * blockSize
	return b.chunks[n/chunkBlocks][at : at+blockSize : at+blockSize]
}

// chain returns an empty block.
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

// room returns n bytes at the end of the chain, for one entry, and moves its end.
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
	e[25] = 0
	if a.Numeric {
		e[25] = 1
	}
}

func (b *blocks) putJoin(t *tail, j *trace.Join) {
	e := b.room(t, joinEntry)
	e[0] = byte(entryJoin)
	binary.LittleEndian.PutUint64(e[1:], uint64(j.Linked))
}

// walk calls f with every entry of the chain that begins at first, what it is and its bytes.
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

// read appends the spans of a chain to t and the records they came with to records.
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
			t.Joins = append(t.Joins, trace.Join{Span: span, Linked: trace.SpanID(le.Uint64(e))})
		case entryEnd:
		}
	})
	return records
}

// release gives the blocks of a chain back.
func (b *blocks) release(first int32) {
	for n := first; n != noBlock; {
		next := int32(binary.LittleEndian.Uint32(b.bytes(n)))
		b.free = append(b.free, n)
		n = next
	}
}
