package estate

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
)

// tee forwards OTLP requests over HTTP to a service and records their spans.
type tee struct {
	to       string // URL
	client   *http.Client
	listener net.Listener
	server   *http.Server
	recorder *recorder
	served   chan struct{} // closed when the server has ended
}

// startTee starts a tee that forwards requests to the address `to` and records them in dir.
func startTee(to, dir string) (*tee, error) {
	r, err := newRecorder(dir)
	if err != nil {
		return nil, err
	}
	t := &tee{
		to:       "http://" + to,
		client:   &http.Client{Timeout: 30 * time.Second},
		recorder: r,
		served:   make(chan struct{}),
	}
	if t.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil { //nolint:noctx // it does not block
		return nil, errors.Join(err, r.close())
	}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	go func() { // ends with close
		defer close(t.served)
		_ = t.server.Serve(t.listener) // it returns when the server is closed
	}()
	return t, nil
}

// ServeHTTP forwards a request and records it if the service accepted it.
func (t *tee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	forward, err := http.NewRequestWithContext(r.Context(), r.Method, t.to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	forward.Header = r.Header.Clone()
	answer, err := t.client.Do(forward)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if answer.StatusCode == http.StatusOK {
		if err := t.recorder.add(body, r.Header.Get("Content-Encoding"), time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // the sender has left
}

// close stops the tee and completes the recording.
func (t *tee) close() error {
	err := t.server.Close()
	<-t.served
	return errors.Join(err, t.recorder.close())
}

// recordAfter is the time for which a trace stays open for further spans. Later spans become a separate trace.
const recordAfter = 5 * time.Minute

// recorder writes traces to a file. Each line is a request in OTLP/JSON with all spans of a trace, ordered by start. It
// is safe for concurrent use.
type recorder struct {
	mu   sync.Mutex // guards all fields
	file *os.File
	zip  *gzip.Writer
	open map[pcommon.TraceID]*openTrace
}

// openTrace collects the spans of a trace.
type openTrace struct {
	start  pcommon.Timestamp
	traces ptrace.Traces
}

// newRecorder creates the file of traces in dir.
func newRecorder(dir string) (*recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, recorded.TracesName+".gz"))
	if err != nil {
		return nil, err
	}
	return &recorder{file: f, zip: gzip.NewWriter(f), open: make(map[pcommon.TraceID]*openTrace)}, nil
}

// add adds the spans of body, a request in protobuf with the given encoding, and writes the traces that are complete at
// time now.
func (r *recorder) add(body []byte, encoding string, now time.Time) error {
	if encoding == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("decompress spans: %w", err)
		}
		if body, err = io.ReadAll(z); err != nil {
			return fmt.Errorf("decompress spans: %w", err)
		}
	}
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return fmt.Errorf("decode spans: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.Traces().ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				r.addSpan(resource, scope, span)
			}
		}
	}
	return r.flush(pcommon.NewTimestampFromTime(now.Add(-recordAfter)))
}

// addSpan adds a copy of span to its trace, with copies of its resource and scope.
func (r *recorder) addSpan(resource ptrace.ResourceSpans, scope ptrace.ScopeSpans, span ptrace.Span) {
	t := r.open[span.TraceID()]
	if t == nil {
		t = &openTrace{start: span.StartTimestamp(), traces: ptrace.NewTraces()}
		r.open[span.TraceID()] = t
	}
	t.start = min(t.start, span.StartTimestamp())
	to := t.traces.ResourceSpans().AppendEmpty()
	resource.Resource().CopyTo(to.Resource())
	s := to.ScopeSpans().AppendEmpty()
	scope.Scope().CopyTo(s.Scope())
	span.CopyTo(s.Spans().AppendEmpty())
}

// flush writes the traces whose start is earlier than before, ordered by start. It requires r.mu.
func (r *recorder) flush(before pcommon.Timestamp) error {
	var complete []pcommon.TraceID
	for id, t := range r.open {
		if t.start < before {
			complete = append(complete, id)
		}
	}
	slices.SortFunc(complete, func(a, b pcommon.TraceID) int {
		return cmp.Or(cmp.Compare(r.open[a].start, r.open[b].start), bytes.Compare(a[:], b[:]))
	})
	for _, id := range complete {
		line, err := ptraceotlp.NewExportRequestFromTraces(r.open[id].traces).MarshalJSON()
		if err != nil {
			return err
		}
		if _, err := r.zip.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("record traces: %w", err)
		}
		delete(r.open, id)
	}
	return nil
}

// close writes the remaining traces.
func (r *recorder) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.flush(^pcommon.Timestamp(0)), r.zip.Close(), r.file.Close())
}

// recordCase appends a labelled fault to the cases of a recording.
func recordCase(dir string, c *Case) error {
	return appendJSON(filepath.Join(dir, recorded.CasesName), map[string]any{
		"name": c.Name, "fault": c.Fault, "start_unix_nano": c.StartUnixNano,
		"end_unix_nano": c.EndUnixNano, "target": c.Target,
	})
}

// appendJSON appends v, as a line of JSON, to the file with the given name.
func appendJSON(name string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
