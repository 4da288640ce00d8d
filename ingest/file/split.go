package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/trace"
)

// Errors in the structure of a stream around its records.
var (
	errStructure = errors.New("not the structure of a JSON document")
	errTruncated = errors.New("the data ends within a record")
	errTrailing  = errors.New("ignored trailing data after the gzip data")
	errFraming   = errors.New("not a field of an OTLP request: the rest of the data cannot be read")
)

// otherFormats are formats that are often mistaken for traces, with their magic numbers and advice for the user.
var otherFormats = []struct {
	offset int
	magic  string
	advice string
}{
	{0, "\xff\xfe", "UTF-16 text: convert it to UTF-8"},
	{0, "\xfe\xff", "UTF-16 text: convert it to UTF-8"},
	{0, string(gzipMagic), "compressed twice: decompress it once"},
	{0, string(zstdMagic), "compressed twice: decompress it once"},
	{0, "PK\x03\x04", "a zip archive: unpack it"},
	{0, "BZh", "bzip2: decompress it, or use gzip or zstd"},
	{0, "\xfd7zXZ", "xz: decompress it, or use gzip or zstd"},
	{257, "ustar", "a tar archive: unpack it"},
}

// otherFormatSize is the number of bytes needed to recognise otherFormats.
const otherFormatSize = 257 + 5

// unrecognised returns the error for a stream of unknown format that starts with head, with advice if it is one of
// otherFormats.
func unrecognised(head []byte) error {
	for _, o := range otherFormats {
		if len(head) > o.offset && bytes.HasPrefix(head[o.offset:], []byte(o.magic)) {
			return errors.New(o.advice)
		}
	}
	return errors.New("not OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON")
}

// splitter splits a stream into records. It looks only at the structure around records, so that a record with broken
// contents doesn't affect other records.
type splitter struct {
	w    *window
	line int64 // number of the current line; 0 if the input does not consist of lines

	inEnvelope bool // inside the envelope of Jaeger's or Tempo's API

	// record is called for each record with the offset of its first byte. data is valid only until the callback
	// returns.
	record recordFunc
	// broken is called for each section of the stream that is not a record.
	broken       brokenFunc
	decompressed bool // the stream is the contents of a compressed file
}

// run splits the whole stream, whose framing is how. It returns errors from the callbacks and from the stream.
func (s *splitter) run(how framing) error {
	if bytes.HasPrefix(s.w.peek(3), []byte("\xef\xbb\xbf")) {
		s.w.pos += 3
	}
	switch how {
	case lines:
		return s.lines()
	case documents:
		return s.documents()
	case fields:
		return s.fields()
	case delimited, prefixed:
		return s.delimited(how)
	case unframed:
	}
	return s.broken(trace.Malformed, unrecognised(s.w.peek(otherFormatSize)), s.at(0, 0))
}

// lines treats each line as a record.
func (s *splitter) lines() error {
	for {
		s.line++
		s.w.hold()
		offset := s.w.offset()
		err := s.endOfLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if failed := s.takeHeld(unknown, offset); failed != nil {
			return failed
		}
		if err != nil {
			return nil //nolint:nilerr // the end
		}
	}
}

// at returns the position with the given line and offset. line is 0 if the input does not consist of lines.
func (s *splitter) at(line, offset int64) position { return position{line, offset, s.decompressed} }

// takeHeld passes on the bytes held by the window as a record that starts at offset, and drops them. If f is unknown,
// it detects the format. If the held bytes have exceeded the limit, it reports the record as broken.
func (s *splitter) takeHeld(f format, offset int64) error {
	defer s.w.drop()
	if s.w.lost {
		return s.broken(trace.TooLarge, fmt.Errorf("record is %w of %d bytes", errLimit, s.w.limit),
			s.at(s.line, offset))
	}
	data := bytes.TrimSpace(s.w.held())
	if len(data) == 0 {
		return nil
	}
	if f == unknown {
		f = formatOf(data)
	}
	return s.record(data, f, s.at(s.line, offset))
}

// endOfLine consumes up to and including the next line feed.
func (s *splitter) endOfLine() error {
	for {
		if i := bytes.IndexByte(s.w.unread(), '\n'); i >= 0 {
			s.w.pos += i + 1
			return nil
		}
		s.w.pos = s.w.end
		if err := s.w.fill(); err != nil {
			return err
		}
	}
}

// documents reads consecutive JSON documents. After a broken document, it continues at the next line that looks like
// the start of a document.
func (s *splitter) documents() error {
	for {
		c, err := s.w.space()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		offset := s.w.offset()
		switch c {
		case '{':
			err = s.object(offset)
		case '[':
			err = s.elements(unknown)
		default:
			err = errStructure
		}
		s.w.drop()
		if err == nil {
			continue
		}
		if failed, ok := errors.AsType[callbackError](err); ok {
			return failed.error
		}
		if err := s.failed(err, offset); err != nil {
			return err
		}
		if err := s.resync(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// callbackError marks errors of callbacks, which end the splitting, to distinguish them from errors in the input.
type callbackError struct{ error }

func callback(err error) error {
	if err != nil {
		return callbackError{err}
	}
	return nil
}

// failed reports the document that started at offset as broken because of err. If err is an error from the stream
// itself, failed returns it.
func (s *splitter) failed(err error, offset int64) error {
	switch {
	case errors.Is(err, io.EOF):
		return s.broken(trace.Malformed, errTruncated, s.at(0, offset))
	case errors.Is(err, errStructure):
		return s.broken(trace.Malformed, err, s.at(0, s.w.offset()))
	}
	return err
}

// resync skips to the next line that starts with a brace or bracket.
func (s *splitter) resync() error {
	for {
		if err := s.endOfLine(); err != nil {
			return err
		}
		if next := s.w.peek(1); len(next) == 0 || next[0] == '{' || next[0] == '[' {
			return nil
		}
	}
}

// object reads a document that is an object. Each element of "resourceSpans", "batches" or "data" is a record. An
// object without these fields is one record.
func (s *splitter) object(offset int64) error {
	w := s.w
	w.hold()
	w.pos++ // the brace
	f := unknown
	for empty := true; ; empty = false {
		c, err := w.space()
		if err != nil {
			return err
		}
		if c == '}' {
			if empty {
				f = otlpJSON
			}
			break
		}
		if !empty {
			if c != ',' {
				return errStructure
			}
			w.pos++
			if _, err = w.space(); err != nil {
				return err
			}
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		keyFormat := formatByKey(key)
		if f == unknown {
			f = keyFormat
		}
		c, err = w.space()
		if err != nil {
			return err
		}
		switch {
		case c == '[' && (keyFormat == otlpJSON || key == "data"):
			element := otlpResource
			if key == "data" {
				element = jaegerJSON
			}
			if err := s.elements(element); err != nil {
				return err
			}
			w.drop() // the rest of the document contains no records
		case c == '{' && isEnvelope(key) && !s.inEnvelope:
			s.inEnvelope = true
			err := s.object(w.offset())
			s.inEnvelope = false
			w.drop()
			if err != nil {
				return err
			}
		default:
			if err := skipValue(w); err != nil {
				return err
			}
		}
	}
	w.pos++ // the brace
	if w.keep < 0 && !w.lost {
		return nil
	}
	return callback(s.takeHeld(f, offset))
}

// key reads a field name and the colon after it. It returns "" for names that are longer than any relevant name.
func (s *splitter) key() (string, error) {
	w := s.w
	from := w.offset()
	if w.buf[w.pos] != '"' {
		return "", errStructure
	}
	held := w.keep >= 0 || w.lost
	if !held {
		w.hold()
	}
	if err := skipValue(w); err != nil {
		return "", err
	}
	key := ""
	if size := w.offset() - from - 2; size < 32 && w.keep >= 0 { // as long as any relevant name may be
		key = string(w.buf[w.pos-1-int(size) : w.pos-1])
	}
	if !held {
		w.drop()
	}
	if c, err := w.space(); err != nil {
		return "", err
	} else if c != ':' {
		return "", errStructure
	}
	w.pos++
	return key, nil
}

// elements reads the array that follows and treats each element as a record in format f.
func (s *splitter) elements(f format) error {
	w := s.w
	w.pos++ // the bracket
	for first := true; ; first = false {
		c, err := w.space()
		if err != nil {
			return err
		}
		if c == ']' {
			w.pos++
			return nil
		}
		if !first {
			if c != ',' {
				return errStructure
			}
			w.pos++
			if _, err := w.space(); err != nil {
				return err
			}
		}
		w.hold()
		offset := w.offset()
		if err := skipValue(w); err != nil {
			return err
		}
		if err := s.takeHeld(f, offset); err != nil {
			return callbackError{err}
		}
	}
}

// byteClass classifies bytes by their role in the structure of JSON outside strings.
var byteClass = func() (c [256]uint8) {
	c['"'], c['{'], c['['], c['}'], c[']'] = isQuote, isOpen, isOpen, isClose, isClose
	c[','], c[':'], c[' '], c['\t'], c['\r'], c['\n'] = isEnd, isEnd, isEnd, isEnd, isEnd, isEnd
	return c
}()

const (
	isQuote = 1 + iota
	isOpen
	isClose
	isEnd // ends a scalar
)

// skipValue consumes one JSON value. It only tracks brackets and strings; decoders check the rest. It returns io.EOF if
// the value doesn't end, and errStructure if there is no value.
func skipValue(w *window) error {
	depth := 0
	scalar := false
	for {
		for w.pos < w.end {
			c := w.buf[w.pos]
			switch byteClass[c] {
			case isQuote:
				if scalar {
					return errStructure
				}
				w.pos++
				if err := skipString(w); err != nil {
					return err
				}
				if depth == 0 {
					return nil
				}
				continue
			case isOpen:
				if scalar {
					return errStructure
				}
				depth++
			case isClose:
				if depth == 0 {
					if scalar {
						return nil
					}
					return errStructure
				}
				if depth--; depth == 0 {
					w.pos++
					return nil
				}
			case isEnd:
				if depth == 0 {
					if scalar {
						return nil
					}
					return errStructure
				}
			default:
				scalar = depth == 0
			}
			w.pos++
		}
		if err := w.fill(); err != nil {
			if scalar && errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// skipString consumes the rest of a string after the opening quote. It returns errStructure if the line ends first.
func skipString(w *window) error {
strings:
	for {
		for i, c := range w.unread() {
			if c != '"' && c != '\\' && c != '\n' {
				continue
			}
			if c == '\n' {
				w.pos += i
				return errStructure
			}
			w.pos += i + 1
			if c == '"' {
				return nil
			}
			if _, err := w.next(); err != nil { // the escaped byte
				return err
			}
			continue strings
		}
		w.pos = w.end
		if err := w.fill(); err != nil {
			return err
		}
	}
}

// fields treats each field of a protobuf request as a record. Each field is a request of its own, because concatenated
// requests form one request.
func (s *splitter) fields() error {
	for {
		header := s.w.peek(1 + 10)
		if len(header) == 0 {
			return s.end()
		}
		offset := s.w.offset()
		size, n, ok := sizeAfterTag(header)
		if !ok {
			return s.broken(trace.Malformed, errFraming, s.at(0, offset))
		}
		err := s.sized(n, size, offset,
			func(data []byte) error { return s.record(data, otlpProtobuf, s.at(0, offset)) })
		if err != nil {
			return ignoreEOF(err)
		}
	}
}

// end returns the error that ended the stream, or nil if it was io.EOF.
func (s *splitter) end() error { return ignoreEOF(s.w.err) }

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// delimited reads requests with length prefixes, which are varints if how is delimited and four bytes if how is
// prefixed.
func (s *splitter) delimited(how framing) error {
	for {
		header := s.w.peek(10)
		if len(header) == 0 {
			return s.end()
		}
		offset := s.w.offset()
		size, n := uint64(0), -1
		if how == delimited {
			size, n = protowire.ConsumeVarint(header)
		} else if len(header) >= 4 {
			size, n = uint64(binary.BigEndian.Uint32(header)), 4
		}
		if n < 0 {
			return s.broken(trace.Malformed, errTruncated, s.at(0, offset))
		}
		s.w.pos += n
		if err := s.sized(0, size, offset, func(data []byte) error { return s.request(data, offset) }); err != nil {
			return ignoreEOF(err)
		}
	}
}

// request passes on data, a request of a delimited stream that starts at offset. It may be protobuf or JSON, plain or
// compressed with zstd.
func (s *splitter) request(data []byte, offset int64) error {
	if bytes.HasPrefix(data, zstdMagic) {
		plain, err := decompress(data, s.w.limit)
		if err != nil {
			return s.broken(trace.Malformed, err, s.at(0, offset))
		}
		data = plain
	}
	if isJSON(data) {
		return s.record(data, formatOf(data), s.at(0, offset))
	}
	return s.record(data, otlpProtobuf, s.at(0, offset))
}

// sized reads the header+size bytes of the record at offset and passes them to f. If the record exceeds the limit,
// sized reports and skips it. If the stream ends too early, sized reports the record as broken and returns io.EOF.
func (s *splitter) sized(header int, size uint64, offset int64, f func([]byte) error) error {
	if size > uint64(s.w.limit-header) {
		err := s.broken(trace.TooLarge, fmt.Errorf("record of %d bytes is %w of %d bytes", size, errLimit, s.w.limit),
			s.at(0, offset))
		if err != nil {
			return err
		}
		return s.discard(uint64(header) + size)
	}
	n := header + int(size)
	data := s.w.peek(n)
	if len(data) < n {
		if err := s.end(); err != nil {
			return err
		}
		if err := s.broken(trace.Malformed, errTruncated, s.at(0, offset)); err != nil {
			return err
		}
		return io.EOF
	}
	if err := f(data); err != nil {
		return err
	}
	s.w.pos += n
	s.w.drop()
	return nil
}

// discard consumes n bytes.
func (s *splitter) discard(n uint64) error {
	for {
		have := min(n, uint64(s.w.end-s.w.pos))
		s.w.pos += int(have)
		if n -= have; n == 0 {
			return nil
		}
		if err := s.w.fill(); err != nil {
			return err
		}
	}
}
