package otlp

import (
	"encoding/base64"
	"math"

	"github.com/go-faster/jx"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/ingest/internal/protowriter"
)

// FromJSON converts data, a request in OTLP/JSON, to protobuf with all its data. It accepts everything that
// [Decoder.JSON] accepts. [Decoder.Protobuf] reads the same spans from the result, and rejects the same spans because
// of their times and identifiers. FromJSON omits invalid fields that the Decoder does not read, and attribute values
// that do not match their type. The error is an *[ingest.RecordError]. FromJSON takes time linear in len(data), and the
// result is not much longer than data.
func FromJSON(data []byte) ([]byte, error) {
	var c converter
	err := c.walk.Record(data, func(j *jx.Decoder) error {
		return requestFields(&c.walk, j, c.resourceSpans)
	})
	if err != nil {
		return nil, err
	}
	return c.out.Bytes, nil
}

// jsonField describes how to convert a field of a message.
type jsonField struct {
	number   protowire.Number
	form     form
	of       map[string]*jsonField // the fields of a message; nil for pairs and values
	optional bool                  // the Decoder doesn't read it, so an invalid value is not an error
}

// form is the form of a value in JSON and in protobuf.
type form uint8

const (
	textForm form = iota
	textsForm
	traceIDForm  // of a span
	spanIDForm   // ID of a span or its parent
	linkIDForm   // ID of a link, 8 or 16 bytes; omitted if invalid
	timeForm     // fixed64
	countForm    // varint
	flagsForm    // fixed32
	kindForm     // an enumeration
	codeForm     // an enumeration
	messageForm  // an object
	messagesForm // a list of objects
	spansForm    // a list of objects
	pairsForm    // a list of KeyValues
	valuesForm   // a list of AnyValues
)

// Messages of OTLP, by the names of their fields in JSON.
var (
	linkMembers = map[string]*jsonField{
		"traceId":                {number: 1, form: linkIDForm},
		"spanId":                 {number: 2, form: linkIDForm},
		"traceState":             {number: 3, form: textForm, optional: true},
		"attributes":             {number: 4, form: pairsForm},
		"droppedAttributesCount": {number: 5, form: countForm, optional: true},
		"flags":                  {number: 6, form: flagsForm, optional: true},
	}
	eventMembers = map[string]*jsonField{
		"timeUnixNano":           {number: 1, form: timeForm},
		"name":                   {number: 2, form: textForm},
		"attributes":             {number: 3, form: pairsForm},
		"droppedAttributesCount": {number: 4, form: countForm, optional: true},
	}
	statusMembers = map[string]*jsonField{
		"message": {number: 2, form: textForm, optional: true},
		"code":    {number: 3, form: codeForm},
	}
	spanMembers = map[string]*jsonField{
		"traceId":                {number: 1, form: traceIDForm},
		"spanId":                 {number: 2, form: spanIDForm},
		"traceState":             {number: 3, form: textForm, optional: true},
		"parentSpanId":           {number: 4, form: spanIDForm},
		"name":                   {number: 5, form: textForm},
		"kind":                   {number: 6, form: kindForm},
		"startTimeUnixNano":      {number: 7, form: timeForm},
		"endTimeUnixNano":        {number: 8, form: timeForm},
		"attributes":             {number: 9, form: pairsForm},
		"droppedAttributesCount": {number: 10, form: countForm, optional: true},
		"events":                 {number: 11, form: messagesForm, of: eventMembers, optional: true},
		"droppedEventsCount":     {number: 12, form: countForm, optional: true},
		"links":                  {number: 13, form: messagesForm, of: linkMembers},
		"droppedLinksCount":      {number: 14, form: countForm, optional: true},
		"status":                 {number: 15, form: messageForm, of: statusMembers},
		"flags":                  {number: 16, form: flagsForm},
	}
	scopeMembers = map[string]*jsonField{
		"name":                   {number: 1, form: textForm},
		"version":                {number: 2, form: textForm, optional: true},
		"attributes":             {number: 3, form: pairsForm},
		"droppedAttributesCount": {number: 4, form: countForm, optional: true},
	}
	scopeSpansMembers = map[string]*jsonField{
		"scope":                  {number: 1, form: messageForm, of: scopeMembers},
		"instrumentationLibrary": {number: 1, form: messageForm, of: scopeMembers},
		"spans":                  {number: 2, form: spansForm, of: spanMembers},
		"schemaUrl":              {number: 3, form: textForm, optional: true},
	}
	entityMembers = map[string]*jsonField{
		"schemaUrl":       {number: 1, form: textForm},
		"type":            {number: 2, form: textForm},
		"idKeys":          {number: 3, form: textsForm},
		"descriptionKeys": {number: 4, form: textsForm},
	}
	resourceMembers = map[string]*jsonField{
		"attributes":             {number: 1, form: pairsForm},
		"droppedAttributesCount": {number: 2, form: countForm, optional: true},
		"entityRefs":             {number: 3, form: messagesForm, of: entityMembers, optional: true},
	}
	resourceSpansMembers = map[string]*jsonField{
		"resource":                    {number: 1, form: messageForm, of: resourceMembers},
		"scopeSpans":                  {number: 2, form: messagesForm, of: scopeSpansMembers},
		"instrumentationLibrarySpans": {number: 2, form: messagesForm, of: scopeSpansMembers},
		"schemaUrl":                   {number: 3, form: textForm, optional: true},
	}
	arrayMembers = map[string]*jsonField{"values": {number: 1, form: valuesForm}}
	pairsMembers = map[string]*jsonField{"values": {number: 1, form: pairsForm}}
)

// converter converts a request from JSON to protobuf.
type converter struct {
	walk    jsonwalk.Walker
	out     protowriter.Writer
	badID   bool // the current span has an invalid identifier
	nesting int  // current nesting of values
}

// maxNesting limits the nesting of values. It is the default limit of protobuf decoders.
const maxNesting = 100

// resourceSpans writes an element of resourceSpans.
func (c *converter) resourceSpans(j *jx.Decoder) error {
	return c.out.Message(fieldResourceSpans, func() error { return c.object(j, resourceSpansMembers) })
}

// object writes the fields of an object that are in `of`, and skips the others.
func (c *converter) object(j *jx.Decoder, of map[string]*jsonField) error {
	return c.walk.Fields(j, func(key []byte) error {
		f := of[string(camelCase(key))]
		switch {
		case f == nil:
			return j.Skip()
		case f.optional:
			return c.attempt(j, func(j *jx.Decoder) error { return c.field(j, f) })
		}
		return c.field(j, f)
	})
}

// attempt calls write for the next value, and discards its output if it fails. It returns an error only if the value
// isn't valid JSON.
func (c *converter) attempt(j *jx.Decoder, write func(*jx.Decoder) error) error {
	raw, err := j.Raw()
	if err != nil {
		return err
	}
	before := len(c.out.Bytes)
	if write(jx.DecodeBytes(raw)) != nil {
		c.out.Bytes = c.out.Bytes[:before]
	}
	return nil
}

// field writes the next value as the field f.
func (c *converter) field(j *jx.Decoder, f *jsonField) error {
	switch f.form {
	case textForm:
		text, err := jsonwalk.Text(j)
		if len(text) > 0 {
			c.out.Text(f.number, text)
		}
		return err
	case textsForm:
		return c.walk.Elements(j, func(j *jx.Decoder) error {
			text, err := jsonwalk.Text(j)
			c.out.Text(f.number, text)
			return err
		})
	case traceIDForm, spanIDForm, linkIDForm:
		return c.identifier(j, f)
	case timeForm:
		v, ok, err := uintJSON(j)
		if !ok {
			v = math.MaxUint64 // rejects the span
		}
		c.out.Fixed64(f.number, v)
		return err
	case countForm:
		v, ok, err := uintJSON(j)
		if ok && v != 0 {
			c.out.Varint(f.number, v)
		}
		return err
	case flagsForm:
		v, err := flagsJSON(j)
		c.out.Fixed32(f.number, v)
		return err
	case kindForm, codeForm:
		names := kinds
		if f.form == codeForm {
			names = statusCodes
		}
		v, err := enumJSON(j, names)
		c.out.Varint(f.number, uint64(int64(v)))
		return err
	case messageForm:
		return c.out.Message(f.number, func() error { return c.object(j, f.of) })
	case messagesForm, spansForm, pairsForm, valuesForm:
		return c.walk.Elements(j, func(j *jx.Decoder) error {
			return c.out.Message(f.number, func() error { return c.listed(j, f) })
		})
	}
	return j.Skip()
}

// listed writes an element of the list f.
func (c *converter) listed(j *jx.Decoder, f *jsonField) error {
	if f.form == pairsForm {
		return c.pair(j)
	}
	if f.form == valuesForm {
		return c.value(j)
	}
	if f.form == spansForm {
		return c.span(j)
	}
	return c.object(j, f.of)
}

// span writes a span. If an identifier is invalid, the span gets no span ID, so that decoders reject it.
func (c *converter) span(j *jx.Decoder) error {
	c.badID = false
	err := c.object(j, spanMembers)
	if c.badID {
		c.out.Text(protowire.Number(spanID>>3), nil)
	}
	return err
}

// identifier writes an identifier if it is valid. An invalid identifier sets badID, unless it belongs to a link.
func (c *converter) identifier(j *jx.Decoder, f *jsonField) error {
	var buf [16]byte
	size := 8
	if f.number == fieldTraceID {
		size = 16
	}
	id, err := idJSON(j, buf[:size])
	switch {
	case len(id) == 0:
	case &id[0] == &buf[0]:
		c.out.Text(f.number, id)
	case f.form != linkIDForm:
		c.badID = true
	}
	return err
}

// pair writes a KeyValue. If it has several values, the last one counts.
func (c *converter) pair(j *jx.Decoder) error {
	var value jx.Raw
	err := c.walk.Fields(j, func(field []byte) error {
		switch string(field) {
		case "key":
			key, err := jsonwalk.Text(j)
			c.out.Text(protowire.Number(pairKey>>3), key)
			return err
		case "value":
			var err error
			value, err = j.Raw()
			return err
		}
		return j.Skip()
	})
	if err != nil || value == nil {
		return err
	}
	return c.attempt(jx.DecodeBytes(value), func(j *jx.Decoder) error {
		return c.out.Message(protowire.Number(pairValue>>3), func() error { return c.value(j) })
	})
}

// value writes the fields of an AnyValue.
func (c *converter) value(j *jx.Decoder) error {
	if j.Next() != jx.Object {
		return j.Skip()
	}
	if c.nesting++; c.nesting > maxNesting {
		c.nesting--
		return errNesting
	}
	defer func() { c.nesting-- }()
	return c.walk.Fields(j, func(key []byte) error {
		if string(key) != "stringValue" && string(key) != "string_value" && j.Next() == jx.Null {
			return j.Null()
		}
		switch string(camelCase(key)) {
		case "stringValue":
			text, ok, err := lenientText(j)
			if ok {
				c.out.Text(protowire.Number(valueString>>3), text)
			}
			return err
		case "boolValue":
			b, ok, err := lenientBool(j)
			if ok {
				c.out.Varint(protowire.Number(valueBool>>3), protowire.EncodeBool(b))
			}
			return err
		case "intValue":
			n, ok, err := lenientInt(j)
			if ok {
				c.out.Varint(protowire.Number(valueInt>>3), uint64(n))
			}
			return err
		case "doubleValue":
			n, ok, err := lenientFloat(j)
			if ok {
				c.out.Fixed64(protowire.Number(valueDouble>>3), math.Float64bits(n))
			}
			return err
		case "arrayValue":
			return c.out.Message(protowire.Number(valueArray>>3), func() error { return c.object(j, arrayMembers) })
		case "kvlistValue":
			return c.out.Message(protowire.Number(valueList>>3), func() error { return c.object(j, pairsMembers) })
		case "bytesValue":
			text, err := jsonwalk.Text(j)
			if err != nil {
				return err
			}
			raw, err := base64.StdEncoding.AppendDecode(nil, text)
			c.out.Text(protowire.Number(valueBytes>>3), raw)
			return err
		}
		return j.Skip()
	})
}

// camelCase converts name from snake case to camel case. It returns name itself if it is already in camel case.
func camelCase(name []byte) []byte {
	for i, c := range name {
		if c != '_' {
			continue
		}
		out := append(make([]byte, 0, len(name)), name[:i]...)
		for upper := false; i < len(name); i++ {
			switch c := name[i]; {
			case c == '_':
				upper = true
			case upper && 'a' <= c && c <= 'z':
				out, upper = append(out, c-'a'+'A'), false
			default:
				out, upper = append(out, c), false
			}
		}
		return out
	}
	return name
}
