package assemble

// spanFilter is a bounded set of span hashes. It recognises every hash that it contains and, wrongly, about one in
// thirty of the others. It is a Bloom filter in parts, because its final size is unknown: each part has room for twice
// as many spans as the previous one. At the limit it forgets its oldest part.
type spanFilter struct {
	parts []filterPart
	room  int // number of hashes that still fit into the last part
}

// filterPart is a Bloom filter that stores all bits for a hash in one word, so that a lookup takes one memory access.
// Its length is a power of two.
type filterPart []uint64

// Sizes of a spanFilter. It takes two bytes per span, and at most 24 MB.
const (
	spansPerWord  = 4
	fewestInPart  = 1 << 12
	mostInPart    = 1 << 20
	mostParts     = 12
	bitsPerSpan   = 4 // bits set in the word of a span
	bitsOfBit     = 6 // bits of the hash that choose one of these bits
	maskOfBit     = 1<<bitsOfBit - 1
	bitsBelowWord = bitsPerSpan * bitsOfBit // bits of the hash that choose all of them; the rest choose the word
)

// add adds h. most is the maximum number of spans in a part, a power of two from fewestInPart to mostInPart.
func (f *spanFilter) add(h uint64, most int) {
	if f.room == 0 {
		f.grow(most)
	}
	f.room--
	word, bits := f.parts[len(f.parts)-1].at(h)
	*word |= bits
}

// grow adds a part for at most `most` spans.
func (f *spanFilter) grow(most int) {
	f.room = fewestInPart
	if n := len(f.parts); n > 0 {
		f.room = min(2*spansPerWord*len(f.parts[n-1]), most)
	}
	if len(f.parts) == mostParts {
		f.parts = append(f.parts[:0], f.parts[1:]...)
	}
	f.parts = append(f.parts, make(filterPart, f.room/spansPerWord))
}

func (f *spanFilter) has(h uint64) bool {
	for _, p := range f.parts {
		if word, bits := p.at(h); *word&bits == bits {
			return true
		}
	}
	return false
}

// at returns the word for the hash h and the bits that h sets in it.
func (p filterPart) at(h uint64) (word *uint64, bits uint64) {
	for i := range bitsPerSpan {
		bits |= 1 << (h >> (i * bitsOfBit) & maskOfBit)
	}
	return &p[h>>bitsBelowWord&uint64(len(p)-1)], bits
}
