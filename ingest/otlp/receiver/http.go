package receiver

import (
	"encoding/json"
	"errors"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Paths of the HTTP server.
const (
	tracesPath = "/v1/traces"
	zipkinPath = "/api/v2/spans" // path of Zipkin's collector
)

// contentTypes holds the media types of OTLP's formats.
var contentTypes = [...]string{Protobuf: "application/x-protobuf", JSON: "application/json"}

// newHTTP returns a server for HTTP/1, which OTLP exporters use on this port.
func (s *Server) newHTTP() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		Protocols:         protocols,
		ReadHeaderTimeout: min(headerTimeout, s.opts.ReadTimeout),
		ReadTimeout:       s.opts.ReadTimeout,
		IdleTimeout:       s.opts.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

// handle answers one request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.handling.RLock()
	defer s.handling.RUnlock()
	began := time.Now()
	event := Event{Transport: HTTP}
	format, known := formatOf(r)
	control := http.NewResponseController(w)
	rejected, err := s.exportHTTP(r, control, format, known, &event)
	// Set it only now, so that the time taken by the Intake doesn't count.
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout)) // fails only for recorders in tests
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		event.Refused = refused.Reason
		writeRefusal(w, format, refused)
	} else {
		event.Rejected = rejected.Spans
		writeAccepted(w, format, rejected)
	}
	event.Duration = time.Since(began)
	s.opts.Observe(event)
}

// exportHTTP processes a request and returns the rejected spans, or a refusal. format and known are the results of
// formatOf. It sets event.Bytes.
func (s *Server) exportHTTP(
	r *http.Request, control *http.ResponseController, format Format, known bool, event *Event,
) (Rejected, error) {
	to, enc, err := s.admit(r, format, known)
	if err != nil {
		return Rejected{}, err
	}
	p, err := to.enter(func() {
		_ = control.SetReadDeadline(time.Unix(1, 0)) // in the past; fails only for recorders in tests
	})
	if err != nil {
		return Rejected{}, err
	}
	defer p.leave()
	b, err := to.bodies.read(r.Context(), p, r.Body, r.ContentLength, enc)
	if err != nil {
		return Rejected{}, to.unread(r.Context(), err)
	}
	defer b.free()
	// From here on, a read only serves to notice that the sender has disconnected, and may wait for as long as the
	// Intake takes.
	_ = control.SetReadDeadline(time.Time{}) // fails only for recorders in tests
	event.Bytes = len(b.bytes())
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return to.take(r.Context(), local, b.bytes(), format)
}

// admit returns the destination and the encoding of the body, or a refusal if the header is reason enough for one.
func (s *Server) admit(r *http.Request, format Format, knownType bool) (*Destination, encoding, error) {
	if len(r.Header) > maxHeaders {
		return nil, 0, refuse(refusal.TooManyHeaders, "too many headers")
	}
	header := r.Header
	to, err := s.destination(senderOf(header.Get("Authorization"), header.Get(scopeHeader), r.RemoteAddr, r.TLS))
	enc, knownEncoding := encodingNames[strings.ToLower(r.Header.Get("Content-Encoding"))]
	switch {
	case err != nil:
		return nil, 0, err
	case s.opts.Foreign != nil && s.opts.Foreign(r):
		return nil, 0, errPage
	case r.URL.Path != tracesPath && r.URL.Path != zipkinPath:
		return nil, 0, refuse(refusal.UnknownPath,
			"only "+tracesPath+" (OTLP) and "+zipkinPath+" (Zipkin) are served here")
	case r.Method != http.MethodPost:
		return nil, 0, errMethod
	case !knownType && format == Zipkin:
		return nil, 0, refuse(refusal.UnknownType,
			"Content-Type must be application/json: of Zipkin's formats, only JSON of version 2 is read")
	case !knownType:
		return nil, 0, refuse(refusal.UnknownType, "Content-Type must be application/x-protobuf or application/json")
	case !knownEncoding || len(r.Header["Content-Encoding"]) > 1:
		return nil, 0, refuse(refusal.UnknownEncoding, "Content-Encoding must be identity, gzip or zstd")
	}
	return to, enc, nil
}

// errPage refuses a request from a web page of another site.
var errPage = refuse(refusal.Forbidden, "pages of other sites may not send traces to this machine: "+
	"let a proxy forward them, or require a token (otlp.require-token)")

// errMethod refuses a request that is not a POST.
var errMethod = &refusal.Error{
	Reason: refusal.UnknownMethod,
	Detail: "only POST is allowed",
	Header: http.Header{"Allow": {http.MethodPost}},
}

// formatOf returns the format of the body of r. known reports whether the Content-Type fits the format. If the type of
// an OTLP request is unknown, formatOf returns JSON, so that people can read the refusal.
func formatOf(r *http.Request) (f Format, known bool) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	i := slices.Index(contentTypes[:], media)
	known = err == nil && i >= 0
	switch {
	case r.URL.Path == zipkinPath:
		return Zipkin, known && Format(i) == JSON
	case !known:
		return JSON, false
	}
	return Format(i), true
}

// writeAccepted answers a request as OTLP prescribes, or like Zipkin, whose answers can't report rejected spans.
func writeAccepted(w http.ResponseWriter, format Format, rejected Rejected) {
	switch format {
	case Zipkin:
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusAccepted)
	case JSON:
		respond(w, JSON, http.StatusOK, rejected.json())
	case Protobuf:
		respond(w, Protobuf, http.StatusOK, rejected.protobuf())
	}
}

// writeRefusal answers with a refusal as a google.rpc.Status.
func writeRefusal(w http.ResponseWriter, format Format, refused *refusal.Error) {
	refused.SetHeader(w.Header())
	if format == Zipkin { // Zipkin doesn't prescribe a form
		format = JSON
	}
	marshal := proto.Marshal
	if format == JSON {
		marshal = protojson.Marshal
	}
	data, err := marshal(refused.GRPCStatus().Proto())
	if err != nil {
		panic(err) // its text is valid UTF-8 and its details are known
	}
	respond(w, format, refused.Code(), data)
}

func respond(w http.ResponseWriter, format Format, code int, data []byte) {
	header := w.Header()
	header.Set("Content-Type", contentTypes[format])
	header.Set("Content-Length", strconv.Itoa(len(data)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(data) // fails only if the client has disconnected
}

// json returns r as an ExportTraceServiceResponse.
func (r Rejected) json() []byte {
	type partial struct {
		Rejected int64  `json:"rejectedSpans,omitempty,string"`
		Message  string `json:"errorMessage,omitempty"`
	}
	data, err := json.Marshal(struct {
		Partial partial `json:"partialSuccess"`
	}{partial{Rejected: int64(r.Spans), Message: r.Why}})
	if err != nil {
		panic(err) // numbers and text can always be encoded
	}
	return data
}
