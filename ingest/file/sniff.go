package file

import (
	"bytes"
	"encoding/binary"

	"github.com/go-faster/jx"
	"google.golang.org/protobuf/encoding/protowire"
)

// format is the format of a record.
type format uint8

const (
	unknown      format = iota
	otlpJSON            // an export request
	otlpResource        // one element of a request's resourceSpans, in JSON
	otlpProtobuf        // an export request
	jaegerJSON          // see [jaeger.Decoder]
	zipkinJSON          // spans; see [zipkin.Translate]
	otherSignal         // logs or metrics in OTLP
)

// framing is the structure of a stream of records.
type framing uint8

const (
	unframed  framing = iota // not recognised
	lines                    // one JSON document per line
	documents                // consecutive JSON documents, read element by element
	fields                   // the fields of one protobuf request
	delimited                // protobuf requests, each prefixed with its size as a varint
	prefixed                 // requests, each prefixed with a size of four bytes, as from the collector's file exporter
)

// sniffSize is the number of bytes that sniff sees. It must exceed the length of a long first line, so that sniff can
// tell lines from documents.
const sniffSize = 16 << 20

// sniff returns the framing of a stream that starts with data.
func sniff(data []byte) framing {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch {
	case isJSON(data):
		return sniffJSON(data)
	case isPrefixed(data):
		return prefixed
	case isRequest(data):
		return fields
	case isDelimited(data):
		return delimited
	case bytes.Contains(data[:min(len(data), windowSize)], []byte("\n{\"")): // after a broken first line
		return lines
	}
	return unframed
}

// isJSON reports whether data starts with a JSON object or a list of objects. A line feed is also a protobuf tag, so
// isJSON checks enough bytes to exclude protobuf.
func isJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 {
		return false
	}
	rest := bytes.TrimLeft(data[1:], " \t\r\n")
	switch data[0] {
	case '{':
		return len(rest) > 1 && rest[0] == '"' && rest[1] >= ' ' || len(rest) > 0 && rest[0] == '}'
	case '[':
		return len(rest) > 0 && (rest[0] == '{' || rest[0] == '[' || rest[0] == ']')
	}
	return false
}

// sniffJSON distinguishes lines from documents. With lines, the first line is a complete document or, if it is
// truncated, the second line starts with a document.
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
	opens := len(bytes.Trim(line, "[ \t\r")) == 0 // a list with one element per line
	if complete && len(rest) > 0 || bytes.HasPrefix(rest, []byte("{\"")) && !opens {
		return lines
	}
	return documents
}

// isRequest reports whether data starts with an export request or TracesData, that is, with a ResourceSpans that starts
// with a valid field.
func isRequest(data []byte) bool {
	size, at, ok := sizeAfterTag(data)
	if !ok {
		return false
	}
	if size == 0 {
		return at == len(data) || data[at] == 0x0a
	}
	return at < len(data) && (data[at] == 0x0a || data[at] == 0x12 || data[at] == 0x1a)
}

// sizeAfterTag reads the tag of resource_spans and the size of its first element. `at` is the offset after the size. ok
// is false if data does not start with a tag and size.
func sizeAfterTag(data []byte) (size uint64, at int, ok bool) {
	if len(data) < 2 || data[0] != 0x0a {
		return 0, 0, false
	}
	size, n := protowire.ConsumeVarint(data[1:])
	return size, 1 + n, n > 0
}

// isDelimited reports whether data starts with a varint and a request whose first element fits into that size.
func isDelimited(data []byte) bool {
	size, n := protowire.ConsumeVarint(data)
	return n > 0 && fits(data[n:], size)
}

// isPrefixed reports whether data starts with a four-byte big-endian size and a request. The request may be in
// protobuf, with a first element that fits into that size, in JSON, or compressed with zstd.
func isPrefixed(data []byte) bool {
	if len(data) < 6 {
		return false
	}
	size := uint64(binary.BigEndian.Uint32(data))
	message := data[4:]
	return fits(message, size) || size > 4 && bytes.HasPrefix(message, zstdMagic) ||
		size > 1 && message[0] == '{' && isJSON(message)
}

func fits(data []byte, size uint64) bool {
	inner, at, ok := sizeAfterTag(data)
	return ok && inner+uint64(at) <= size && isRequest(data)
}

// holdsTraces reports whether a listed file that starts with head and has the framing `how` may contain traces. named
// means that its name is typical of traces. Such a file may contain traces unless it is a JSON document of another
// kind.
func holdsTraces(head []byte, how framing, named bool) bool {
	switch how {
	case lines, documents:
		f, sure := look(head)
		return f != unknown && f != otherSignal || named && !sure
	case fields, delimited, prefixed, unframed:
	}
	return named || how != unframed
}

// formatOf returns the format of data, a JSON document, from the first field that determines it, or unknown.
func formatOf(data []byte) format {
	if bytes.HasPrefix(data, []byte(`{"resourceSpans"`)) {
		return otlpJSON
	}
	f, _ := look(data)
	return f
}

// look is like formatOf, but for data that may be truncated. sure reports whether it found a field that identifies the
// format, or the end of the document.
func look(data []byte) (f format, sure bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	j := jx.DecodeBytes(data)
	for j.Next() == jx.Array { // a list of Jaeger's traces, or of Zipkin's spans or traces
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
		if isEnvelope(string(it.Key())) && j.Next() == jx.Object {
			return otlpJSON, true // the splitter removes the envelope
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

// formatByKey returns the format of JSON documents with a field named key, or unknown.
func formatByKey(key string) format {
	switch key {
	case "resourceSpans", "resource_spans", "batches":
		return otlpJSON
	case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
		return otlpResource
	case "data", "spans", "processes", "traceID":
		return jaegerJSON
	case "traceId", "localEndpoint":
		return zipkinJSON
	case "resourceLogs", "resourceMetrics", "resource_logs", "resource_metrics":
		return otherSignal
	}
	return unknown
}

// isEnvelope reports whether an object under key may be a request in the envelope of Jaeger's or Tempo's API.
func isEnvelope(key string) bool { return key == "result" || key == "trace" }
