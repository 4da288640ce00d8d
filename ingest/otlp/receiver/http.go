package receiver

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// tracesPath is the only one there is.
const tracesPath = "/v1/traces"

// contentTypes of the formats.
var contentTypes = [...]string{Protobuf: "application/x-protobuf", JSON: "application/json"}

// newHTTP returns a server for HTTP/1, which is what OTLP's senders speak to this port.
func (s *Server) newHTTP(encryption *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		TLSConfig:         encrypted(encryption, "http/1.1"),
		Protocols:         protocols,
		ReadHeaderTimeout: min(headerTimeout, s.opts.ReadTimeout),
		ReadTimeout:       s.opts.ReadTimeout,
		IdleTimeout:       s.opts.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
}

// handle answers one request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.handling.RLock()
	defer s.handling.RUnlock()
	began := time.Now()
	event := Event{Transport: HTTP}
	format, known := formatOf(r.Header.Get("Content-Type"))
	control := http.NewResponseController(w)
	rejected, err := s.exportHTTP(r, control, format, known, &event)
	// Only now, so that the time the Intake takes does not count.
	control.SetWriteDeadline(time.Now().Add(answerTimeout)) //nolint:errcheck // only recorders of tests cannot
	if refused, ok := errors.AsType[*refusal](err); ok {
		event.Outcome = refused.outcome
		refuse(w, format, refused)
	} else {
		event.Rejected = rejected.Spans
		accept(w, format, rejected)
	}
	event.Duration = time.Since(began)
	s.opts.Observe(event)
}

// exportHTTP returns what of a request was left out, or a refusal. The format is known only if its name was.
func (s *Server) exportHTTP(r *http.Request, control *http.ResponseController, format Format, known bool, event *Event) (Rejected, error) {
	enc, err := s.admit(r, known)
	if err != nil {
		return Rejected{}, err
	}
	if err := s.enter(); err != nil {
		return Rejected{}, err
	}
	defer s.budget.leave()
	b, err := s.bodies.read(r.Context(), r.Body, r.ContentLength, enc)
	if err != nil {
		return Rejected{}, s.unread(r.Context(), err)
	}
	defer b.free()
	// What is read from now on only tells that the sender went away, and may take as long as the Intake does.
	control.SetReadDeadline(time.Time{}) //nolint:errcheck // only recorders of tests cannot
	event.Bytes = len(b.bytes())
	return s.take(r.Context(), b.bytes(), format)
}

// admit returns how the body is encoded, or why the header alone is reason enough to refuse the request.
func (s *Server) admit(r *http.Request, knownType bool) (encoding, error) {
	enc, knownEncoding := encodingNames[strings.ToLower(r.Header.Get("Content-Encoding"))]
	switch {
	case len(r.Header) > maxHeaders:
		return 0, &refusal{outcome: TooManyHeaders, why: "too many headers"}
	case !s.authorized(r.Header.Get("Authorization")):
		return 0, &refusal{outcome: Unauthenticated, why: "a valid bearer token is needed"}
	case r.URL.Path != tracesPath:
		return 0, &refusal{outcome: UnknownPath, why: "only " + tracesPath + " is served here"}
	case r.Method != http.MethodPost:
		return 0, &refusal{outcome: UnknownMethod, why: "only POST is allowed"}
	case !knownType:
		return 0, &refusal{outcome: UnknownType, why: "Content-Type must be application/x-protobuf or application/json"}
	case !knownEncoding || len(r.Header["Content-Encoding"]) > 1:
		return 0, &refusal{outcome: UnknownEncoding, why: "Content-Encoding must be identity, gzip or zstd"}
	}
	return enc, nil
}

// formatOf returns the format of a Content-Type. One that is not known gets its refusal in JSON, which people can read.
func formatOf(contentType string) (f Format, known bool) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return JSON, false
	}
	i := slices.Index(contentTypes[:], media)
	if i < 0 {
		return JSON, false
	}
	return Format(i), true
}

func accept(w http.ResponseWriter, format Format, rejected Rejected) {
	if format == JSON {
		respond(w, JSON, http.StatusOK, rejected.json())
		return
	}
	respond(w, Protobuf, http.StatusOK, rejected.protobuf())
}

// refuse answers with the google.rpc.Status of a refusal.
func refuse(w http.ResponseWriter, format Format, r *refusal) {
	header := w.Header()
	if r.outcome == Overloaded {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.after.Seconds()))))
	}
	if r.outcome == Unauthenticated {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if r.outcome == UnknownMethod {
		header.Set("Allow", http.MethodPost)
	}
	marshal := proto.Marshal
	if format == JSON {
		marshal = protojson.Marshal
	}
	data, err := marshal(r.status().Proto())
	if err != nil {
		panic(err) // its text is valid UTF-8 and its details are known
	}
	respond(w, format, outcomes[r.outcome].http, data)
}

func respond(w http.ResponseWriter, format Format, code int, data []byte) {
	header := w.Header()
	header.Set("Content-Type", contentTypes[format])
	header.Set("Content-Length", strconv.Itoa(len(data)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(data) //nolint:errcheck // the client went away; there is nobody to tell
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
