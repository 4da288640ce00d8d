package analysis

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Packer turns observations into some hundred bytes each and back, so that many can be kept and gone through several times. What
// observations have in common (contexts, edges, places of variables) is kept once, in the Packer: only the Packer that packed
// an observation can unpack it. It is not safe for concurrent use, except that several Unpack may run at once.
type Packer struct {
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

// numbered gives values numbers in the order of their first use.
type numbered[T comparable] struct {
	numbers map[T]uint64
	values  []T
}

func (n *numbered[T]) number(v T) uint64 {
	if i, ok := n.numbers[v]; ok {
		return i
	}
	if n.numbers == nil {
		n.numbers = make(map[T]uint64)
	}
	i := uint64(len(n.values))
	n.numbers[v] = i
	n.values = append(n.values, v)
	return i
}

// Append appends the packed form of o to b.
func (p *Packer) Append(b []byte, o *Observation) []byte {
	b = append(b, o.Trace[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Root))
	b = binary.AppendUvarint(b, uint64(o.Start))
	b = binary.AppendUvarint(b, uint64(o.Duration))
	b = binary.AppendUvarint(b, p.ops.number(o.Entry))
	b = append(b, flag(o.Failed))
	b = binary.AppendVarint(b, o.Plan)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Arm))
	b = binary.LittleEndian.AppendUint64(b, o.Skeleton.Hi)
	b = binary.LittleEndian.AppendUint64(b, o.Skeleton.Lo)
	b = binary.AppendUvarint(b, uint64(len(o.Children)))
	for _, op := range o.Children {
		b = binary.AppendUvarint(b, p.ops.number(op))
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
	b = binary.AppendUvarint(b, p.contexts.number(packedContext{c.Context, c.Parent, c.Op, c.Tracepoint}))
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
		b = binary.AppendUvarint(b, p.edges.number(e))
		b = binary.AppendUvarint(b, uint64(nanos))
	}
	return b
}

func (p *Packer) appendVariables(b []byte, variables []Variable) []byte {
	b = binary.AppendUvarint(b, uint64(len(variables)))
	for _, v := range variables {
		b = binary.AppendUvarint(b, p.places.number(packedPlace{v.Context, v.Key, v.Numeric}))
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
	o.Entry = p.ops.values[r.uvarint()]
	o.Failed = r.take(1)[0] != 0
	o.Plan = r.varint()
	o.Arm = trace.Symbol(r.fixed())
	o.Skeleton = Hash{Hi: r.fixed(), Lo: r.fixed()}
	o.Children = o.Children[:0]
	for range r.uvarint() {
		o.Children = append(o.Children, p.ops.values[r.uvarint()])
	}
	o.Contexts = o.Contexts[:0]
	for range r.uvarint() {
		c := &p.contexts.values[r.uvarint()]
		o.Contexts = append(o.Contexts, ContextCount{
			Context: c.context, Parent: c.parent, Op: c.op, Tracepoint: c.tracepoint,
			Count: int32(r.uvarint()), Errors: int32(r.uvarint()),
			Exclusive: int64(r.uvarint()), Self: int64(r.uvarint()), Total: int64(r.uvarint()),
		})
	}
	o.Edges = p.unpackEdges(&r, o.Edges[:0])
	o.Refined = p.unpackEdges(&r, o.Refined[:0])
	o.Variables = p.unpackVariables(&r, o.Variables[:0])
	return r.rest
}

func (p *Packer) unpackEdges(r *reader, edges []EdgeTime) []EdgeTime {
	for range r.uvarint() {
		e := p.edges.values[r.uvarint()]
		e.Nanos = int64(r.uvarint())
		edges = append(edges, e)
	}
	return edges
}

func (p *Packer) unpackVariables(r *reader, variables []Variable) []Variable {
	for range r.uvarint() {
		place := &p.places.values[r.uvarint()]
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
