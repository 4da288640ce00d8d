package api

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListExemplars implements contract.StrictServerInterface.
func (a *API) ListExemplars(_ context.Context, r contract.ListExemplarsRequestObject) (contract.ListExemplarsResponseObject, error) {
	group, err := analysis.ParseHash(r.Params.Group)
	if err != nil {
		return nil, notFound("group")
	}
	exemplars, err := a.past.Exemplars(group)
	if err != nil {
		return nil, err
	}
	list := contract.ListExemplars200JSONResponse{Items: []contract.Exemplar{}}
	for _, stratum := range []struct {
		name contract.ExemplarStratum
		all  []store.Exemplar
	}{
		{contract.ExemplarStratumSlow, exemplars.Slow}, {contract.ExemplarStratumTypical, exemplars.Typical}, {contract.ExemplarStratumFast, exemplars.Fast},
	} {
		if r.Params.Stratum != nil && string(*r.Params.Stratum) != string(stratum.name) {
			continue
		}
		for i := range stratum.all {
			x := &stratum.all[i]
			list.Items = append(list.Items, contract.Exemplar{
				Trace: x.Trace.String(), Group: group.String(), Stratum: stratum.name, Start: at(x.Start), DurationNs: x.Duration,
			})
		}
	}
	return list, nil
}

// GetTrace implements contract.StrictServerInterface.
func (a *API) GetTrace(ctx context.Context, r contract.GetTraceRequestObject) (contract.GetTraceResponseObject, error) {
	id, err := trace.ParseID(r.Trace)
	if err != nil {
		return nil, notFound("trace")
	}
	data, err := a.past.Trace(id)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, notFound("kept trace: exemplars are")
	}
	var options analysis.Options
	if err := a.ask(ctx, func(c *engine.Core) { options = c.Options().Path }); err != nil {
		return nil, err
	}
	d, ops, err := readTrace(id, data, options)
	if err != nil {
		return nil, fmt.Errorf("kept trace %s: %w", id, err)
	}
	if err := a.rank(ctx, d, ops); err != nil {
		return nil, err
	}
	for _, u := range notify.LinksTo(*a.links.Load(), linked(id, d)) {
		d.Links = append(d.Links, contract.Link{Name: u.Name, URL: u.URL})
	}
	return contract.GetTrace200JSONResponse(*d), nil
}

// leastRanked is how many spans of an operation must have been seen for a percentile to mean anything.
const leastRanked = 20

// rank says of each span what part of the spans of its operation was shorter.
func (a *API) rank(ctx context.Context, d *contract.Trace, ops map[spanKey]trace.Op) error {
	ranks := make(map[trace.Op]*stats.Ranks)
	for i := range d.Spans {
		ranks[ops[keyOf(&d.Spans[i])]] = nil
	}
	err := a.ask(ctx, func(c *engine.Core) {
		if since := c.Spans().Since(); since > 0 {
			d.RankedSince = new(at(since))
		}
		for op := range ranks {
			ranks[op] = new(c.Spans().Of(op))
		}
	})
	if err != nil {
		return err
	}
	for i := range d.Spans {
		s := &d.Spans[i]
		r := ranks[ops[keyOf(s)]]
		if s.Among = int64(r.Count()); s.Among >= leastRanked {
			s.Percentile = new(100 * r.Below(min(max(0, s.DurationNs), stats.MaxNanos-1)))
		}
	}
	return nil
}

// spanKey tells the spans of a trace apart, the two halves of a shared ID, too.
type spanKey struct{ id, kind string }

func keyOf(s *contract.Span) spanKey { return spanKey{s.ID, s.Kind} }

// linked returns what links to a trace lead to: it, and its first root.
func linked(id trace.ID, d *contract.Trace) *notify.Request {
	start := trace.Nanos(d.Start.UnixNano())
	r := &notify.Request{Trace: id, Start: start, End: start.Add(time.Duration(d.DurationNs))}
	if len(d.Roots) == 0 {
		return r
	}
	if i := slices.IndexFunc(d.Spans, func(s contract.Span) bool { return s.ID == d.Roots[0].Span }); i >= 0 {
		r.Service, r.Operation = d.Spans[i].Service, d.Spans[i].Name
	}
	return r
}

// shownSpans bounds the spans of a trace that are shown.
const shownSpans = 100_000

// readTrace returns a trace of an OTLP request with its critical path, and the operations of its spans.
func readTrace(id trace.ID, data []byte, options analysis.Options) (*contract.Trace, map[spanKey]trace.Op, error) {
	keys, err := ingest.NewKeys()
	if err != nil {
		return nil, nil, err
	}
	table := &trace.Table{}
	var batch ingest.Batch
	if err := otlp.NewDecoder(table, keys).Protobuf(data, &batch); err != nil {
		return nil, nil, err
	}
	t := flat(id, &batch)
	ops := make(map[spanKey]trace.Op, len(t.Spans))
	for i := range t.Spans {
		s := &t.Spans[i]
		ops[spanKey{s.ID.String(), s.Kind.String()}] = s.Op
	}
	path := analysis.NewExtractor(options).Extract(t)
	d := &contract.Trace{
		ID: id.String(), Flags: path.Flags.Names(), Spans: []contract.Span{}, Roots: []contract.Root{}, Links: []contract.Link{},
	}
	if d.Flags == nil {
		d.Flags = []string{}
	}
	own := make(map[string]int64) // exclusive ns by span
	start := firstStart(t)
	for i := range path.Roots {
		root := &path.Roots[i]
		d.Roots = append(d.Roots, contract.Root{
			Span: path.Nodes[root.Node].ID.String(), DurationNs: path.Duration(root).Nanoseconds(),
			Sections: sections(path, start, root.Sections), Refined: sections(path, start, root.Refined),
		})
		walk := root.Sections
		if len(root.Refined) > 0 {
			walk = root.Refined
		}
		for _, s := range walk {
			own[path.Nodes[s.Node].ID.String()] += int64(s.End - s.Start)
		}
	}
	v := &spanReader{trace: id[:], start: start, own: own}
	v.request(data)
	slices.SortStableFunc(v.spans, func(x, y contract.Span) int {
		return cmp.Or(cmp.Compare(x.StartNs, y.StartNs), cmp.Compare(y.DurationNs, x.DurationNs))
	})
	d.DroppedSpans = max(0, len(v.spans)-shownSpans)
	d.Spans = append(d.Spans, v.spans[:len(v.spans)-d.DroppedSpans]...)
	d.Start = at(start)
	for i := range v.spans {
		d.DurationNs = max(d.DurationNs, v.spans[i].StartNs+v.spans[i].DurationNs)
	}
	return d, ops, nil
}

// flat returns one trace of a batch.
func flat(id trace.ID, batch *ingest.Batch) *trace.Trace {
	t := &trace.Trace{ID: id}
	to := make([]int32, len(batch.Spans))
	for i := range batch.Spans {
		to[i] = -1
		if batch.Traces[i] == id {
			to[i] = int32(len(t.Spans))
			t.Spans = append(t.Spans, batch.Spans[i])
		}
	}
	for _, x := range batch.Attrs {
		if x.Span = to[x.Span]; x.Span >= 0 {
			t.Attrs = append(t.Attrs, x)
		}
	}
	for _, x := range batch.Joins {
		if x.Span = to[x.Span]; x.Span >= 0 {
			t.Joins = append(t.Joins, x)
		}
	}
	return t
}

func firstStart(t *trace.Trace) trace.Nanos {
	first := trace.MaxNanos
	for i := range t.Spans {
		first = min(first, t.Spans[i].Start)
	}
	return first
}

func sections(p *analysis.Path, origin trace.Nanos, list []analysis.Section) []contract.Section {
	all := make([]contract.Section, 0, len(list))
	for _, s := range list {
		all = append(all, contract.Section{Span: p.Nodes[s.Node].ID.String(), StartNs: int64(s.Start - origin), EndNs: int64(s.End - origin)})
	}
	return all
}

// spanReader reads the spans of a trace as they were sent, with all attributes. What is nested is not followed, so that depth costs
// nothing. Whatever the decoder has read can be read again: what is malformed in attributes is left out.
type spanReader struct {
	trace []byte
	start trace.Nanos
	own   map[string]int64

	service string
	spans   []contract.Span
}

// fields calls f with the fields of a message; bytes are set for those that have a length.
func fields(b []byte, f func(number int32, bytes []byte, word uint64)) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		var bytes []byte
		var word uint64
		if kind == protowire.BytesType {
			bytes, _ = protowire.ConsumeBytes(b)
		}
		if kind == protowire.VarintType {
			word, _ = protowire.ConsumeVarint(b)
		}
		if kind == protowire.Fixed64Type {
			word, _ = protowire.ConsumeFixed64(b)
		}
		f(int32(number), bytes, word)
		b = b[n:]
	}
}

// Numbers of fields, from opentelemetry-proto trace.proto and common.proto.
const (
	requestResource  = 1
	resourceResource = 1
	resourceScope    = 2
	resourceAttrs    = 1
	scopeSpan        = 2
	spanTrace        = 1
	spanID           = 2
	spanParent       = 4
	spanName         = 5
	spanKind         = 6
	spanStart        = 7
	spanEnd          = 8
	spanAttr         = 9
	spanStatus       = 15
	statusCode       = 3
	statusError      = 2
)

func (v *spanReader) request(data []byte) {
	fields(data, func(number int32, resource []byte, _ uint64) {
		if number != requestResource {
			return
		}
		v.service = ""
		fields(resource, func(number int32, b []byte, _ uint64) { // it may come after its spans
			if number == resourceResource {
				fields(b, func(number int32, b []byte, _ uint64) {
					if x := attribute(b); number == resourceAttrs && x.Key == "service.name" {
						v.service = x.Value
					}
				})
			}
		})
		fields(resource, func(number int32, b []byte, _ uint64) {
			if number == resourceScope {
				fields(b, func(number int32, b []byte, _ uint64) {
					if number == scopeSpan {
						v.span(b)
					}
				})
			}
		})
	})
}

func (v *spanReader) span(b []byte) {
	s := contract.Span{Service: v.service, Kind: trace.Unspecified.String(), Attributes: []contract.Attribute{}}
	var id []byte
	var start, end uint64
	fields(b, func(number int32, b []byte, word uint64) {
		switch number {
		case spanTrace:
			id = b
		case spanID:
			s.ID = hex.EncodeToString(b)
		case spanParent:
			if len(b) == 8 && binary.BigEndian.Uint64(b) != 0 {
				s.Parent = hex.EncodeToString(b)
			}
		case spanName:
			s.Name = string(b)
		case spanKind:
			s.Kind = trace.Kind(word).String()
		case spanStart:
			start = word
		case spanEnd:
			end = word
		case spanAttr:
			x := attribute(b)
			if x.Key == trace.KeyTracepoint {
				s.Tracepoint = x.Value
			}
			s.Attributes = append(s.Attributes, x)
		case spanStatus:
			fields(b, func(number int32, _ []byte, word uint64) {
				s.Error = s.Error || number == statusCode && word == statusError
			})
		}
	})
	if string(id) != string(v.trace) || max(start, end) > uint64(trace.MaxNanos) {
		return
	}
	s.StartNs, s.DurationNs, s.ExclusiveNs = int64(start)-int64(v.start), int64(end)-int64(start), v.own[s.ID]
	v.spans = append(v.spans, s)
}

// Numbers of the fields of an attribute and of its value.
const (
	attrKey     = 1
	attrValue   = 2
	valueText   = 1
	valueBool   = 2
	valueInt    = 3
	valueDouble = 4
	valueBytes  = 7
)

func attribute(b []byte) contract.Attribute {
	var x contract.Attribute
	fields(b, func(number int32, b []byte, _ uint64) {
		switch number {
		case attrKey:
			x.Key = string(b)
		case attrValue:
			fields(b, func(number int32, b []byte, word uint64) { x.Value = attributeText(number, b, word) })
		}
	})
	return x
}

func attributeText(number int32, b []byte, word uint64) string {
	switch number {
	case valueText:
		return string(b)
	case valueBool:
		return strconv.FormatBool(word != 0)
	case valueInt:
		return strconv.FormatInt(int64(word), 10)
	case valueDouble:
		return strconv.FormatFloat(math.Float64frombits(word), 'g', -1, 64)
	case valueBytes:
		return hex.EncodeToString(b)
	}
	return "…" // a list or map: not followed
}
