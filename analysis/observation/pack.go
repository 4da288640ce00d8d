package observation

import (
	"cmp"
	"encoding/binary"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// Packer turns observations into some hundred bytes each and back, so that many can be kept and gone through several times. What
// observations have in common (contexts, edges, places of variables) is kept once, in the Packer: only the Packer that packed
// an observation can unpack it. It is not safe for concurrent use, except that several Unpack may run at once.
//
// The dictionary is bounded: what is new once it is full is written out in full, in every observation, and counted.
type Packer struct {
	Limit  int    // most entries of each sort; 0: DefaultPacked
	Inline uint64 // values that were written out in full

	contexts numbered[packedContext]
	edges    numbered[EdgeTime] // Nanos is 0
	places   numbered[packedPlace]
	ops      numbered[trace.Op]
}

// packedContext is the part of a ContextCount that its observations share.
type packedContext struct {
	context, parent trace.Context
	op              trace.Op
	tracepoint      trace.Symbol
}

// packedPlace is the part of a Variable that its observations share.
type packedPlace struct {
	context trace.Context
	key     trace.Symbol
	numeric bool
}

// DefaultPacked bounds each sort of entry of a [Packer]'s dictionary: some 100 bytes each.
const DefaultPacked = 1 << 20

// numbered gives values numbers from 1 in the order of their first use.
type numbered[T comparable] struct {
	numbers map[T]uint64
	values  []T
}

// number returns the number of v; 0 if it has none and the dictionary is full.
func (n *numbered[T]) number(v T, limit int) uint64 {
	if i, ok := n.numbers[v]; ok {
		return i
	}
	if len(n.values) >= limit {
		return 0
	}
	if n.numbers == nil {
		n.numbers = make(map[T]uint64)
	}
	n.values = append(n.values, v)
	i := uint64(len(n.values))
	n.numbers[v] = i
	return i
}

// write appends the number of v to b or, where it has none, 0 and what full appends.
func write[T comparable](p *Packer, n *numbered[T], b []byte, v T, full func([]byte, T) []byte) []byte {
	i := n.number(v, cmp.Or(p.Limit, DefaultPacked))
	b = binary.AppendUvarint(b, i)
	if i == 0 {
		p.Inline++
		b = full(b, v)
	}
	return b
}

// read reads what write wrote.
func read[T comparable](n *numbered[T], r *reader, full func(*reader) T) T {
	if i := r.uvarint(); i > 0 {
		return n.values[i-1]
	}
	return full(r)
}

func appendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func fullOp(b []byte, op trace.Op) []byte { return appendWords(b, uint64(op)) }

func readOp(r *reader) trace.Op { return trace.Op(r.fixed()) }

func fullContext(b []byte, c packedContext) []byte {
	return appendWords(b, uint64(c.context), uint64(c.parent), uint64(c.op), uint64(c.tracepoint))
}

func readContext(r *reader) packedContext {
	return packedContext{trace.Context(r.fixed()), trace.Context(r.fixed()), trace.Op(r.fixed()), trace.Symbol(r.fixed())}
}

func fullEdge(b []byte, e EdgeTime) []byte {
	return appendWords(b, uint64(e.Edge), uint64(e.Context), uint64(e.Before), uint64(e.After), uint64(e.Callee), uint64(e.Within))
}

func readEdge(r *reader) EdgeTime {
	return EdgeTime{
		Edge: trace.Edge(r.fixed()), Context: trace.Context(r.fixed()), Before: trace.Op(r.fixed()), After: trace.Op(r.fixed()),
		Callee: trace.Op(r.fixed()), Within: trace.Edge(r.fixed()),
	}
}

func fullPlace(b []byte, p packedPlace) []byte {
	return append(appendWords(b, uint64(p.context), uint64(p.key)), flag(p.numeric))
}

func readPlace(r *reader) packedPlace {
	return packedPlace{trace.Context(r.fixed()), trace.Symbol(r.fixed()), r.take(1)[0] != 0}
}

// Append appends the packed form of o to b.
func (p *Packer) Append(b []byte, o *Observation) []byte {
	b = append(b, o.Trace[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Root))
	b = binary.AppendUvarint(b, uint64(o.Start))
	b = binary.AppendUvarint(b, uint64(o.Duration))
	b = write(p, &p.ops, b, o.Entry, fullOp)
	b = append(b, flag(o.Failed))
	b = binary.AppendVarint(b, o.Plan)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Arm))
	b = binary.LittleEndian.AppendUint64(b, o.Skeleton.Hi)
	b = binary.LittleEndian.AppendUint64(b, o.Skeleton.Lo)
	b = binary.AppendUvarint(b, uint64(len(o.Children)))
	for _, op := range o.Children {
		b = write(p, &p.ops, b, op, fullOp)
	}
	b = binary.AppendUvarint(b, uint64(len(o.Contexts)))
	for i := range o.Contexts {
		b = p.appendContext(b, &o.Contexts[i])
	}
	b = p.appendEdges(b, o.Edges)
	b = p.appendEdges(b, o.Refined)
	return p.appendVariables(b, o.Variables)
}

func (p *Packer) appendContext(b []byte, c *ContextCount) []byte {
	b = write(p, &p.contexts, b, packedContext{c.Context, c.Parent, c.Op, c.Tracepoint}, fullContext)
	b = binary.AppendUvarint(b, uint64(c.Count))
	b = binary.AppendUvarint(b, uint64(c.Errors))
	b = binary.AppendUvarint(b, uint64(c.Exclusive))
	b = binary.AppendUvarint(b, uint64(c.Self))
	return binary.AppendUvarint(b, uint64(c.Total))
}

func (p *Packer) appendEdges(b []byte, edges []EdgeTime) []byte {
	b = binary.AppendUvarint(b, uint64(len(edges)))
	for _, e := range edges {
		nanos := e.Nanos
		e.Nanos = 0
		b = write(p, &p.edges, b, e, fullEdge)
		b = binary.AppendUvarint(b, uint64(nanos))
	}
	return b
}

func (p *Packer) appendVariables(b []byte, variables []Variable) []byte {
	b = binary.AppendUvarint(b, uint64(len(variables)))
	for _, v := range variables {
		b = write(p, &p.places, b, packedPlace{v.Context, v.Key, v.Numeric}, fullPlace)
		if v.Numeric {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Number))
		} else {
			b = binary.LittleEndian.AppendUint64(b, uint64(v.Text))
		}
	}
	return b
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Unpack reads into o, whose slices it reuses, the observation at the beginning of b, and returns the bytes behind it. The bytes
// must be those of this Packer's Append; anything else panics or reads nonsense.
func (p *Packer) Unpack(b []byte, o *Observation) []byte {
	r := reader{b}
	copy(o.Trace[:], r.take(16))
	o.Root = trace.SpanID(r.fixed())
	o.Start = trace.Nanos(r.uvarint())
	o.Duration = time.Duration(r.uvarint())
	o.Entry = read(&p.ops, &r, readOp)
	o.Failed = r.take(1)[0] != 0
	o.Plan = r.varint()
	o.Arm = trace.Symbol(r.fixed())
	o.Skeleton = analysis.Hash{Hi: r.fixed(), Lo: r.fixed()}
	o.Children = o.Children[:0]
	for range r.uvarint() {
		o.Children = append(o.Children, read(&p.ops, &r, readOp))
	}
	o.Contexts = o.Contexts[:0]
	for range r.uvarint() {
		c := read(&p.contexts, &r, readContext)
		o.Contexts = append(o.Contexts, ContextCount{
			Context: c.context, Parent: c.parent, Op: c.op, Tracepoint: c.tracepoint,
			Count: int32(r.uvarint()), Errors: int32(r.uvarint()),
			Exclusive: int64(r.uvarint()), Self: int64(r.uvarint()), Total: int64(r.uvarint()),
		})
	}
	o.Edges = p.unpackEdges(&r, o.Edges[:0])
	o.Refined = p.unpackEdges(&r, o.Refined[:0])
	o.Variables = p.unpackVariables(&r, o.Variables[:0])
	o.Shape = o.ComputeShape()
	return r.rest
}

func (p *Packer) unpackEdges(r *reader, edges []EdgeTime) []EdgeTime {
	for range r.uvarint() {
		e := read(&p.edges, r, readEdge)
		e.Nanos = int64(r.uvarint())
		edges = append(edges, e)
	}
	return edges
}

func (p *Packer) unpackVariables(r *reader, variables []Variable) []Variable {
	for range r.uvarint() {
		place := read(&p.places, r, readPlace)
		v := Variable{Context: place.context, Key: place.key, Numeric: place.numeric}
		if bits := r.fixed(); v.Numeric {
			v.Number = math.Float64frombits(bits)
		} else {
			v.Text = trace.Symbol(bits)
		}
		variables = append(variables, v)
	}
	return variables
}

// reader takes values off the front of bytes that are known to be well formed.
type reader struct{ rest []byte }

func (r *reader) take(n int) []byte {
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) fixed() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.rest = r.rest[n:]
	return v
}
