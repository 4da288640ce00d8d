package file

import (
	"bytes"
	"encoding/binary"

	"github.com/go-faster/jx"
	"google.golang.org/protobuf/encoding/protowire"
)

// format is what a record holds.
type format uint8

const (
	unknown      format = iota
	otlpJSON            // an export request
	otlpResource        // one element of a request's resourceSpans, in JSON
	otlpProtobuf        // an export request
	jaegerJSON          // what jaeger.Decoder reads
	noTraces            // logs or metrics of OTLP
)

// framing is how the records of a stream are told apart.
type framing uint8

const (
	unframed  framing = iota // not recognised
	lines                    // JSON documents, one a line
	documents                // JSON documents, one after the other, read element by element
	fields                   // the fields of one protobuf request
	delimited                // protobuf requests, each after its size as a varint
	prefixed                 // protobuf requests, each after its size in four bytes, as the collector's file exporter writes
)

// sniffSize is how much of a stream is looked at to tell lines from documents.
const sniffSize = 16 << 20

// sniff tells from the first bytes of a stream how it is to be read.
func sniff(data []byte) framing {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch {
	case looksJSON(data):
		return sniffJSON(data)
	case looksPrefixed(data):
		return prefixed
	case looksRequest(data):
		return fields
	case looksDelimited(data):
		return delimited
	case bytes.Contains(data[:min(len(data), windowSize)], []byte("\n{\"")): // a broken first line
		return lines
	}
	return unframed
}

// looksJSON reports whether data begins like a JSON object, or a list of objects. A line feed is also a tag of protobuf, so it
// looks on until no request could continue that way.
func looksJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 {
		return false
	}
	rest := bytes.TrimLeft(data[1:], " \t\r\n")
	switch data[0] {
	case '{':
		return len(rest) > 1 && rest[0] == '"' && rest[1] >= ' ' || len(rest) > 0 && rest[0] == '}'
	case '[':
		return len(rest) > 0 && (rest[0] == '{' || rest[0] == ']')
	}
	return false
}

// sniffJSON tells lines from documents: each of several lines is a document of its own. A first line that is torn is no
// document, but the second one begins like one.
func sniffJSON(data []byte) framing {
	line, rest, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return documents
	}
	rest = bytes.TrimLeft(rest, " \t\r\n")
	if len(bytes.TrimSpace(line)) == 0 {
		return sniffJSON(rest)
	}
	w := newWindow(bytes.NewReader(line), len(line)+windowSize)
	complete := skipValue(w) == nil
	if complete && len(rest) > 0 || bytes.HasPrefix(rest, []byte("{\"")) {
		return lines
	}
	return documents
}

// looksRequest reports whether data begins like an export request or TracesData: ResourceSpans, which begin with a field they
// can have.
func looksRequest(data []byte) bool {
	size, at, ok := sizeAfterTag(data)
	if !ok {
		return false
	}
	if size == 0 {
		return at == len(data) || data[at] == 0x0a
	}
	return at < len(data) && (data[at] == 0x0a || data[at] == 0x12 || data[at] == 0x1a)
}

// sizeAfterTag reads the tag of resource_spans and the size of the first one.
func sizeAfterTag(data []byte) (size uint64, at int, ok bool) {
	if len(data) < 2 || data[0] != 0x0a {
		return 0, 0, false
	}
	size, n := protowire.ConsumeVarint(data[1:])
	return size, 1 + n, n > 0
}

// looksDelimited reports whether data begins with the size of a request, then a request of at most that size.
func looksDelimited(data []byte) bool {
	size, n := protowire.ConsumeVarint(data)
	return n > 0 && fits(data[n:], size)
}

// looksPrefixed is looksDelimited for sizes of four bytes, big-endian.
func looksPrefixed(data []byte) bool {
	if len(data) < 6 {
		return false
	}
	size := uint64(binary.BigEndian.Uint32(data))
	return fits(data[4:], size) || size > 4 && bytes.HasPrefix(data[4:], zstdMagic)
}

func fits(data []byte, size uint64) bool {
	inner, at, ok := sizeAfterTag(data)
	return ok && inner+uint64(at) <= size && looksRequest(data)
}

// holdsTraces reports whether a stream that begins with head is worth reading. named says that the file's name promises it;
// then it takes a JSON document that is something else to deny it.
func holdsTraces(head []byte, how framing, named bool) bool {
	switch how {
	case lines, documents:
		f, sure := look(head)
		return f != unknown && f != noTraces || named && !sure
	case fields, delimited, prefixed, unframed:
	}
	return named || how != unframed
}

// formatOf tells what a JSON document holds by the first of its fields that says so.
func formatOf(data []byte) format {
	if bytes.HasPrefix(data, []byte(`{"resourceSpans"`)) {
		return otlpJSON
	}
	f, _ := look(data)
	return f
}

// look is formatOf for data that may be cut off. It is sure if it found a field that says what the document is, or the
// end of the document.
func look(data []byte) (f format, sure bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	j := jx.DecodeBytes(data)
	list := j.Next() == jx.Array
	if list {
		it, err := j.ArrIter()
		if err != nil || !it.Next() {
			return jaegerJSON, err == nil && it.Err() == nil // an empty list
		}
	}
	it, err := j.ObjIter()
	if err != nil {
		return unknown, false
	}
	empty := true
	for it.Next() {
		if f := formatByKey(string(it.Key())); f != unknown {
			return f, true
		}
		empty = false
		if string(it.Key()) == "result" && j.Next() == jx.Object {
			return otlpJSON, true // the splitter takes the envelope of Jaeger's API off
		}
		if j.Skip() != nil {
			return unknown, false
		}
	}
	if empty && it.Err() == nil {
		return otlpJSON, true // an empty request
	}
	return unknown, it.Err() == nil
}

// formatByKey tells what a JSON document holds that has a field with that name.
func formatByKey(key string) format {
	switch key {
	case "resourceSpans", "resource_spans":
		return otlpJSON
	case "scopeSpans", "scope_spans":
		return otlpResource
	case "data", "spans", "processes", "traceID":
		return jaegerJSON
	case "resourceLogs", "resourceMetrics", "resource_logs", "resource_metrics":
		return noTraces
	}
	return unknown
}
