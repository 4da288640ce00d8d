package observation

import (
	"cmp"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Packer packs observations into a few hundred bytes each, so that many can be kept and read several times. Its
// dictionary stores the values that observations share (contexts, edges, contexts and keys of variables) only once, so
// an observation can be unpacked only by the Packer that packed it, or by a decoded copy of it. A Packer is not safe
// for concurrent use, except that several calls to Unpack may run at the same time.
//
// The dictionary is bounded. Once it is full, it counts new values, and writes them out in full in every observation.
type Packer struct {
	Limit  int    // maximum number of values of each kind; 0 means DefaultPacked, negative no dictionary
	Inline uint64 // values that were written out because the dictionary was full

	plain bool // without peers, unanswered calls and sums of paths

	contexts dictionary[packedContext]
	edges    dictionary[EdgeTime] // with Nanos 0
	places   dictionary[packedPlace]
	ops      dictionary[trace.Op]
}

// packedContext is the part of a ContextCount that many observations share.
type packedContext struct {
	context, parent trace.Context
	op, target      trace.Op
	tracepoint      trace.Symbol
	peer            trace.Op // 0 if the packer is plain
}

// packedPlace is the part of a Variable that many observations share.
type packedPlace struct {
	context trace.Context
	key     trace.Symbol
	numeric bool
}

// DefaultPacked is the default limit of a [Packer]. A value takes about 100 bytes.
const DefaultPacked = 1 << 20

// dictionary numbers values from 1 in the order of their first use.
type dictionary[T comparable] struct {
	numbers map[T]uint64
	values  []T
}

// number returns the number of v. It returns 0 if v is new and the dictionary is full.
func (d *dictionary[T]) number(v T, limit int) uint64 {
	if i, ok := d.numbers[v]; ok {
		return i
	}
	if len(d.values) >= limit {
		return 0
	}
	if d.numbers == nil {
		d.numbers = make(map[T]uint64)
	}
	d.values = append(d.values, v)
	i := uint64(len(d.values))
	d.numbers[v] = i
	return i
}

// appendNumber appends the number of v to b. If v has no number, it appends 0 and calls appendValue to append v itself.
func appendNumber[T comparable](p *Packer, d *dictionary[T], b []byte, v T, appendValue func([]byte, T) []byte) []byte {
	i := d.number(v, cmp.Or(p.Limit, DefaultPacked))
	b = codec.AppendUvarints(b, i)
	if i == 0 {
		p.Inline++
		b = appendValue(b, v)
	}
	return b
}

// readNumber reads the value that appendNumber wrote.
func readNumber[T comparable](d *dictionary[T], r *codec.Reader, readValue func(*codec.Reader) T) (v T) {
	i := r.Uvarint()
	switch {
	case i == 0:
		return readValue(r)
	case i > uint64(len(d.values)):
		r.Fail()
		return v
	}
	return d.values[i-1]
}

func appendOp(b []byte, op trace.Op) []byte { return codec.AppendWords(b, uint64(op)) }

func readOp(r *codec.Reader) trace.Op { return trace.Op(r.Word()) }

func appendContext(b []byte, c packedContext) []byte {
	return codec.AppendWords(appendPlainContext(b, c), uint64(c.peer))
}

func readContext(r *codec.Reader) packedContext {
	c := readPlainContext(r)
	c.peer = trace.Op(r.Word())
	return c
}

func appendPlainContext(b []byte, c packedContext) []byte {
	return codec.AppendWords(b, uint64(c.context), uint64(c.parent), uint64(c.op), uint64(c.target),
		uint64(c.tracepoint))
}

func readPlainContext(r *codec.Reader) packedContext {
	return packedContext{
		context:    trace.Context(r.Word()),
		parent:     trace.Context(r.Word()),
		op:         trace.Op(r.Word()),
		target:     trace.Op(r.Word()),
		tracepoint: trace.Symbol(r.Word()),
	}
}

func appendEdge(b []byte, e EdgeTime) []byte {
	return codec.AppendWords(b, uint64(e.Edge), uint64(e.Context), uint64(e.Before), uint64(e.After), uint64(e.Within))
}

func readEdge(r *codec.Reader) EdgeTime {
	return EdgeTime{
		Edge:    trace.Edge(r.Word()),
		Context: trace.Context(r.Word()),
		Before:  trace.Op(r.Word()),
		After:   trace.Op(r.Word()),
		Within:  trace.Edge(r.Word()),
	}
}

func appendPlace(b []byte, p packedPlace) []byte {
	return codec.AppendBools(codec.AppendWords(b, uint64(p.context), uint64(p.key)), p.numeric)
}

func readPlace(r *codec.Reader) packedPlace {
	return packedPlace{trace.Context(r.Word()), trace.Symbol(r.Word()), r.Bool()}
}

// Append appends the packed form of o to b.
func (p *Packer) Append(b []byte, o *Observation) []byte {
	b = append(b, o.Trace[:]...)
	b = codec.AppendWords(b, uint64(o.Root))
	b = codec.AppendUvarints(b, uint64(o.Start), uint64(o.Duration))
	b = appendNumber(p, &p.ops, b, o.Entry, appendOp)
	b = codec.AppendBools(b, o.Failed)
	b = codec.AppendVarints(b, o.Plan)
	b = codec.AppendWords(b, uint64(o.Arm), o.Skeleton.Hi, o.Skeleton.Lo)
	if !p.plain {
		b = codec.AppendWords(b, o.Path.Hi, o.Path.Lo)
		b = codec.AppendUvarints(b, o.Path.N)
	}
	b = codec.AppendUvarints(b, uint64(len(o.Behind)))
	for _, service := range o.Behind {
		b = codec.AppendWords(b, uint64(service))
	}
	b = codec.AppendUvarints(b, uint64(len(o.Children)))
	for _, op := range o.Children {
		b = appendNumber(p, &p.ops, b, op, appendOp)
	}
	b = codec.AppendUvarints(b, uint64(len(o.Contexts)))
	for i := range o.Contexts {
		b = p.appendContext(b, &o.Contexts[i])
	}
	b = p.appendEdges(b, o.Edges)
	b = p.appendEdges(b, o.Refined)
	return p.appendVariables(b, o.Variables)
}

func (p *Packer) appendContext(b []byte, c *ContextCount) []byte {
	shared := packedContext{c.Context, c.Parent, c.Op, c.Target, c.Tracepoint, c.Peer}
	if p.plain {
		shared.peer = 0
		b = appendNumber(p, &p.contexts, b, shared, appendPlainContext)
	} else {
		b = appendNumber(p, &p.contexts, b, shared, appendContext)
		b = codec.AppendUvarints(b, uint64(c.Unanswered))
	}
	return codec.AppendUvarints(b, uint64(c.Count), uint64(c.Errors), uint64(c.Exclusive), uint64(c.Self),
		uint64(c.Total))
}

func (p *Packer) appendEdges(b []byte, edges []EdgeTime) []byte {
	b = codec.AppendUvarints(b, uint64(len(edges)))
	for _, e := range edges {
		nanos := e.Nanos
		e.Nanos = 0
		b = appendNumber(p, &p.edges, b, e, appendEdge)
		b = codec.AppendUvarints(b, uint64(nanos))
	}
	return b
}

func (p *Packer) appendVariables(b []byte, variables []Variable) []byte {
	b = codec.AppendUvarints(b, uint64(len(variables)))
	for _, v := range variables {
		b = appendNumber(p, &p.places, b, packedPlace{v.Context, v.Key, v.Numeric}, appendPlace)
		if v.Numeric {
			b = codec.AppendFloats(b, v.Number)
		} else {
			b = codec.AppendWords(b, uint64(v.Text))
		}
	}
	return b
}

// Smallest packed sizes in bytes: the number of a value in the dictionary, and the parts that differ by observation.
const (
	serviceSize     = 8
	minOpSize       = 1
	minContextSize  = 1 + 5
	minEdgeSize     = 1 + 1
	minVariableSize = 1 + 8
)

// Unpack decodes the observation at the start of b into o, reusing its slices, and returns the bytes after it. If p did
// not pack the bytes, or if values are out of range or out of order, it sets o to the zero value and returns an error
// wrapping [codec.ErrCorrupt].
func (p *Packer) Unpack(b []byte, o *Observation) (rest []byte, err error) {
	r := codec.NewReader(b)
	copy(o.Trace[:], r.Bytes(len(o.Trace)))
	o.Root = trace.SpanID(r.Word())
	o.Start = trace.Nanos(r.Uvarint())
	o.Duration = time.Duration(r.Below(uint64(trace.MaxDuration)))
	r.Check(o.Duration > 0)
	o.Entry = readNumber(&p.ops, r, readOp)
	o.Failed = r.Bool()
	o.Plan = r.Varint()
	o.Arm = trace.Symbol(r.Word())
	o.Skeleton = analysis.Hash{Hi: r.Word(), Lo: r.Word()}
	o.Path = PathSums{}
	if !p.plain {
		o.Path = PathSums{r.Word(), r.Word(), r.Uvarint()}
	}
	o.Behind = o.Behind[:0]
	for i := range r.Count(serviceSize) {
		service := trace.Symbol(r.Word())
		r.Check(i == 0 || service > o.Behind[i-1])
		o.Behind = append(o.Behind, service)
	}
	o.Children = o.Children[:0]
	for i := range r.Count(minOpSize) {
		op := readNumber(&p.ops, r, readOp)
		r.Check(i == 0 || op > o.Children[i-1])
		o.Children = append(o.Children, op)
	}
	o.Contexts = p.unpackContexts(r, o.Contexts[:0])
	o.Edges = p.unpackEdges(r, o.Duration, o.Edges[:0])
	o.Refined = p.unpackEdges(r, o.Duration, o.Refined[:0])
	o.Variables = p.unpackVariables(r, o.Variables[:0])
	if err := r.Err(); err != nil {
		*o = Observation{}
		return nil, err
	}
	o.Shape = o.ComputeShape()
	return r.Rest(), nil
}

func (p *Packer) unpackContexts(r *codec.Reader, contexts []ContextCount) []ContextCount {
	for i := range r.Count(minContextSize) {
		var c packedContext
		unanswered := uint64(0)
		if p.plain {
			c = readNumber(&p.contexts, r, readPlainContext)
		} else {
			c = readNumber(&p.contexts, r, readContext)
			unanswered = r.Below(math.MaxInt32 + 1)
		}
		r.Check(i == 0 || c.context > contexts[i-1].Context)
		count := r.Below(math.MaxInt32 + 1)
		contexts = append(contexts, ContextCount{
			Context: c.context, Parent: c.parent, Op: c.op, Target: c.target, Tracepoint: c.tracepoint, Peer: c.peer,
			Unanswered: int32(unanswered), Count: int32(count), Errors: int32(r.Below(count + 1)),
			Exclusive: int64(r.Uvarint()), Self: int64(r.Uvarint()), Total: int64(r.Uvarint()),
		})
	}
	return contexts
}

func (p *Packer) unpackEdges(r *codec.Reader, longest time.Duration, edges []EdgeTime) []EdgeTime {
	for i := range r.Count(minEdgeSize) {
		e := readNumber(&p.edges, r, readEdge)
		r.Check(i == 0 || e.compare(&edges[i-1]) > 0)
		e.Nanos = int64(r.Below(uint64(longest) + 1))
		edges = append(edges, e)
	}
	return edges
}

func (p *Packer) unpackVariables(r *codec.Reader, variables []Variable) []Variable {
	for i := range r.Count(minVariableSize) {
		place := readNumber(&p.places, r, readPlace)
		v := Variable{Context: place.context, Key: place.key, Numeric: place.numeric}
		r.Check(i == 0 || v.compare(&variables[i-1]) > 0)
		if bits := r.Word(); v.Numeric {
			v.Number = math.Float64frombits(bits)
		} else {
			v.Text = trace.Symbol(bits)
		}
		variables = append(variables, v)
	}
	return variables
}
