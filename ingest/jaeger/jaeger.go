// Package jaeger decodes the JSON of Jaeger's query API, which is also the format of exports from its user interface.
//
// The input is a response {"data": [trace, …]}, one trace {"traceID", "spans", "processes"}, or a list of traces.
// [Decoder] appends its spans to an [ingest.Batch]. It interprets spans according to Jaeger's model: the parent is the
// first CHILD_OF reference within the trace, else the first FOLLOWS_FROM reference, else parentSpanID. Kind, errors and
// the attributes of the tracepoint protocol come from tags. Other FOLLOWS_FROM references are links. Identifiers are
// hexadecimal and may lack leading zeros. The decoder skips fields that the analysis does not need: warnings, logs
// other than exceptions, and the spans that some exports repeat inside references.
//
// The module jaeger-idl defines the model only in protobuf, whose JSON encoding differs, so this package reads the
// fields directly.
package jaeger

import (
	"encoding/hex"
	"errors"
	"math"
	"strconv"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/trace"
)

// maxProcesses is the maximum number of processes in a trace.
const maxProcesses = 1 << 16

var (
	errProcesses = errors.New("more than 65536 processes in a trace")
	errBare      = errors.New("a span outside a trace, as in Jaeger's storage: use the query API, which returns traces")
)

// Decoder decodes exported traces. It keeps buffers and caches between documents. It is not safe for concurrent use.
type Decoder struct {
	build *ingest.Builder
	keys  *ingest.Keys
	walk  jsonwalk.Walker

	processes map[string]ingest.Resource
	process   string // ID of the current process; valid if known is set
	known     bool

	traceID, id, parent id
	refs                []reference
	start, duration     float64 // µs
	badTime             bool
}

// id is an identifier of 16 bytes; span IDs use the last 8.
type id struct {
	bytes [16]byte
	given bool
	bad   bool   // text isn't hexadecimal, or is too long
	text  []byte // original text
}

// reference is one element of a span's references.
type reference struct {
	trace, span id
	child       bool // refType is CHILD_OF
}

// NewDecoder returns a decoder that keeps the attributes (tags) in keys and adds names to table. table must not be used
// while the decoder is decoding.
func NewDecoder(table *trace.Table, keys *ingest.Keys) *Decoder {
	return &Decoder{build: ingest.NewBuilder(table, keys), keys: keys, processes: make(map[string]ingest.Resource)}
}

// JSON decodes one document and appends its spans to into, where it also counts invalid spans. If data is not a
// document in one of the accepted forms, JSON returns an *[ingest.RecordError] and leaves into unchanged. The offset of
// the error is the position of the last field name before it.
func (d *Decoder) JSON(data []byte, into *ingest.Batch) error {
	mark := into.Mark()
	d.build.Begin(into)
	err := d.walk.Record(data, d.document)
	if err != nil {
		into.Rollback(mark)
	}
	return err
}

// document reads a list of traces, one trace, or a response.
func (d *Decoder) document(j *jx.Decoder) error {
	if j.Next() == jx.Array {
		return d.walk.Elements(j, d.trace)
	}
	return d.trace(j)
}

// trace reads a trace or a response. If spans precede the processes, trace reads the processes first.
func (d *Decoder) trace(j *jx.Decoder) error {
	clear(d.processes)
	d.known = false
	processes := false
	var later []jx.Raw
	err := d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "data":
			return d.walk.Elements(j, d.trace)
		case "processes":
			processes = true
			return d.walk.Fields(j, func(key []byte) error { return d.addProcess(j, key) })
		case "spans":
			if processes {
				return d.walk.Elements(j, d.span)
			}
			raw, err := j.Raw()
			later = append(later, raw)
			return err
		case "spanID":
			return errBare
		}
		return j.Skip()
	})
	for _, raw := range later {
		if err == nil {
			err = d.walk.Elements(jx.DecodeBytes(raw), d.span)
		}
	}
	return err
}

func (d *Decoder) addProcess(j *jx.Decoder, key []byte) error {
	id := string(key)
	if len(d.processes) >= maxProcesses {
		return errProcesses
	}
	if err := d.readProcess(j); err != nil {
		return err
	}
	d.processes[id] = d.build.Save()
	return nil
}

// hostTags maps the host tags of Jaeger's clients to the keys of OpenTelemetry.
var hostTags = map[string][]byte{"hostname": []byte("host.name"), "ip": []byte("host.ip")}

// readProcess reads a process into the current resource.
func (d *Decoder) readProcess(j *jx.Decoder) error {
	d.build.NewResource()
	d.known = false
	return d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "serviceName":
			name, err := jsonwalk.Text(j)
			if err == nil {
				d.build.Service(name)
			}
			return err
		case "tags":
			return d.walk.Elements(j, func(j *jx.Decoder) error {
				key, v, ok, err := d.tag(j)
				if err != nil || !ok {
					return err
				}
				if !v.Numeric {
					d.build.ResourceText(key, v.Text)
					d.build.ResourceText(hostTags[string(key)], v.Text)
				}
				if found := d.keys.Find(key); found != ingest.Unwanted {
					d.build.SharedAttr(found, key, v)
				}
				return nil
			})
		}
		return j.Skip()
	})
}

// use makes the process with the given ID the current resource. If the ID is unknown, the resource is empty.
func (d *Decoder) use(process []byte) {
	if d.known && d.process == string(process) {
		return
	}
	if r, ok := d.processes[string(process)]; ok {
		d.build.Use(r)
		d.process, d.known = string(process), true
	} else {
		d.build.NewResource()
		d.known = false
	}
}

func (d *Decoder) span(j *jx.Decoder) error {
	s := d.build
	s.Span()
	d.traceID, d.id, d.parent = id{}, id{}, id{}
	d.refs = d.refs[:0]
	d.start, d.duration, d.badTime = 0, 0, false
	var process []byte
	inline := false
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceID":
			err = d.traceID.read(j)
		case "spanID":
			err = d.id.read(j)
		case "parentSpanID":
			err = d.parent.read(j)
		case "operationName":
			s.Name, err = jsonwalk.Text(j)
		case "references":
			err = d.walk.Elements(j, d.reference)
		case "startTime":
			d.start, err = d.micros(j)
		case "duration":
			d.duration, err = d.micros(j)
		case "tags":
			err = d.walk.Elements(j, d.spanTag)
		case "logs":
			err = d.walk.Elements(j, d.log)
		case "processID":
			process, err = jsonwalk.Text(j)
		case "process":
			if inline = j.Next() == jx.Object; inline {
				err = d.readProcess(j)
			} else {
				err = j.Skip()
			}
		default:
			err = j.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if !inline {
		d.use(process)
	}
	d.end()
	return nil
}

// end completes the current span.
func (d *Decoder) end() {
	s := d.build
	start, end := int64(d.start), int64(d.start)+int64(d.duration)
	if d.badTime || start < 0 || end < 0 {
		s.Cause |= ingest.TimeDefect
	} else {
		s.Start, s.End = uint64(start)*1000, uint64(end)*1000
	}
	switch {
	case d.traceID.bad:
		s.Cause, s.Trace = s.Cause|ingest.TraceIDDefect, d.traceID.text
	case d.traceID.given:
		s.Trace = d.traceID.bytes[:]
	}
	switch {
	case d.id.bad || [8]byte(d.id.bytes[:8]) != [8]byte{}: // more than 16 digits
		s.Cause, s.ID = s.Cause|ingest.SpanIDDefect, d.id.text
	case d.id.given:
		s.ID = d.id.bytes[8:]
	}
	d.relate()
	s.EndSpan()
}

// relate sets the parent and the links of the current span from its references.
func (d *Decoder) relate() {
	parent := -1
	for i := range d.refs {
		r := &d.refs[i]
		if r.trace.bytes != d.traceID.bytes || r.trace.bad || r.span.bad {
			continue
		}
		if parent < 0 || r.child && !d.refs[parent].child {
			parent = i
		}
	}
	for i := range d.refs {
		if r := &d.refs[i]; i != parent && !r.child && !r.trace.bad && !r.span.bad {
			d.build.Link(r.trace.bytes[:], r.span.bytes[8:], false)
		}
	}
	switch {
	case parent >= 0:
		d.build.Parent = d.refs[parent].span.bytes[8:]
	case d.parent.bad:
		d.build.Cause, d.build.Parent = d.build.Cause|ingest.ParentIDDefect, d.parent.text
	case d.parent.given:
		d.build.Parent = d.parent.bytes[8:]
	}
}

func (d *Decoder) reference(j *jx.Decoder) error {
	var r reference
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "refType":
			var kind []byte
			kind, err = jsonwalk.Text(j)
			r.child = string(kind) == "CHILD_OF"
		case "traceID":
			err = r.trace.read(j)
		case "spanID":
			err = r.span.read(j)
		default:
			err = j.Skip()
		}
		return err
	})
	d.refs = append(d.refs, r)
	return err
}

func (d *Decoder) spanTag(j *jx.Decoder) error {
	key, v, ok, err := d.tag(j)
	if err != nil || !ok {
		return err
	}
	if string(key) == "span.kind" {
		d.build.Kind, _ = trace.ParseKind(string(v.Text))
	}
	if found := d.keys.Find(key); found != ingest.Unwanted {
		d.build.Attr(found, key, v)
	}
	return nil
}

// log reads a log of the current span. If its field "event" is "exception", log records an exception.
func (d *Decoder) log(j *jx.Decoder) error {
	exception, escape := false, ingest.EscapeUnknown
	err := d.walk.Fields(j, func(key []byte) error {
		if string(key) != "fields" {
			return j.Skip()
		}
		return d.walk.Elements(j, func(j *jx.Decoder) error {
			key, v, ok, err := d.tag(j)
			switch {
			case err != nil || !ok:
			case string(key) == "event":
				exception = string(v.Text) == ingest.ExceptionEvent
			case string(key) == ingest.ExceptionEscaped:
				escape = ingest.EscapeOf(v)
			}
			return err
		})
	})
	if exception {
		d.build.Exception(escape)
	}
	return err
}

// tag reads a tag {"key", "type", "value"}. ok is false if the value is binary or not a scalar.
func (d *Decoder) tag(j *jx.Decoder) (key []byte, v ingest.Value, ok bool, err error) {
	var kind []byte
	err = d.walk.Fields(j, func(field []byte) error {
		var err error
		switch string(field) {
		case "key":
			key, err = jsonwalk.Text(j)
		case "type":
			kind, err = jsonwalk.Text(j)
		case "value":
			v, ok, err = value(j)
		default:
			err = j.Skip()
		}
		return err
	})
	switch string(kind) {
	case "binary":
		ok = false
	case "int64", "float64":
		if !v.Numeric { // some exports write large numbers as strings
			v.Number, err = orNaN(v.Text, err)
			v.Numeric, v.Text = true, nil
			ok = ok && !math.IsNaN(v.Number)
		}
	}
	return key, v, ok, err
}

func orNaN(text []byte, err error) (float64, error) {
	n, parsed := strconv.ParseFloat(string(text), 64)
	if parsed != nil {
		n = math.NaN()
	}
	return n, err
}

var (
	trueText  = []byte("true")
	falseText = []byte("false")
)

// value reads a scalar. It skips any other value and returns false.
func value(j *jx.Decoder) (v ingest.Value, ok bool, err error) {
	switch j.Next() {
	case jx.String:
		v.Text, err = j.StrBytes()
		return v, true, err
	case jx.Bool:
		b, err := j.Bool()
		if v.Text = falseText; b {
			v.Text = trueText
		}
		return v, true, err
	case jx.Number:
		n, err := j.Num()
		if err != nil {
			return v, false, err
		}
		v.Number, err = strconv.ParseFloat(string(n), 64)
		v.Numeric = true
		return v, err == nil, nil
	case jx.Invalid, jx.Null, jx.Array, jx.Object:
	}
	return v, false, j.Skip()
}

// micros reads a number of microseconds, or a string that contains one. A number that is invalid or out of range is a
// defect of the current span, not an error. Durations may be negative, because a clock may be set back during a span.
func (d *Decoder) micros(j *jx.Decoder) (float64, error) {
	v, ok, err := value(j)
	if !v.Numeric && err == nil {
		v.Number, _ = orNaN(v.Text, nil)
	}
	if !ok || !(math.Abs(v.Number) <= float64(trace.MaxNanos/1000)) {
		d.badTime = true
		return 0, err
	}
	return v.Number, err
}

// read reads an identifier of at most 32 hexadecimal digits. It sets bad if the text isn't such an identifier, and
// leaves given unset if the text is empty.
func (id *id) read(j *jx.Decoder) error {
	var err error
	if id.text, err = jsonwalk.Text(j); err != nil || len(id.text) == 0 {
		return err
	}
	var digits [32]byte
	id.given = true
	if id.bad = len(id.text) > len(digits); id.bad {
		return nil
	}
	n := copy(digits[:], "00000000000000000000000000000000"[len(id.text):])
	copy(digits[n:], id.text)
	_, bad := hex.Decode(id.bytes[:], digits[:])
	id.bad = bad != nil
	return nil
}
