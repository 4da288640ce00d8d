// Package otlp sends waits as children of the spans that waited, to a Collector or to Sibyl, over OTLP/gRPC.
package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Limits on sending. There are many waits, and a sample of them suffices, so waits that cannot be sent at once are
// dropped and counted.
const (
	maxQueued = 64   // batches
	maxBatch  = 1024 // waits in one request
	// maxBytes is the approximate maximum size of a request: Collectors refuse whole requests above 4 MiB.
	maxBytes = 3 << 20
	timeout  = 5 * time.Second
)

// Exporter sends waits. Its methods may be called concurrently, except that Add must not be called during or after
// Close.
type Exporter struct {
	connection *grpc.ClientConn
	client     ptraceotlp.GRPCClient
	token      string
	syscall    func(int32) string
	log        *slog.Logger
	queue      chan []join.Wait
	stop       context.CancelFunc
	done       chan struct{}

	mu     sync.Mutex // guards the fields below
	counts Counts
	unsent map[string]uint64 // see Unsent
}

// Counts counts waits by result.
type Counts struct {
	Sent    uint64
	Dropped uint64 // the queue was full
	Failed  uint64 // the receiver refused them or did not answer
}

// Open returns an Exporter that sends to an endpoint: host:port or grpc://host:port without TLS, or grpcs://host:port
// with TLS. If token isn't empty, the Exporter sends it with each request. syscall must return the name of a system
// call.
func Open(endpoint, token string, syscall func(int32) string, log *slog.Logger) (*Exporter, error) {
	address, security, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(security))
	if err != nil {
		return nil, fmt.Errorf("send waits to %s: %w", endpoint, err)
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	e := &Exporter{
		connection: connection,
		client:     ptraceotlp.NewGRPCClient(connection),
		token:      token,
		syscall:    syscall,
		log:        log,
		queue:      make(chan []join.Wait, maxQueued),
		stop:       stop,
		done:       make(chan struct{}),
		unsent:     make(map[string]uint64),
	}
	go e.run(ctx)
	return e, nil
}

func parseEndpoint(text string) (address string, security credentials.TransportCredentials, err error) {
	address, security = strings.TrimPrefix(text, "grpc://"), insecure.NewCredentials()
	if rest, ok := strings.CutPrefix(text, "grpcs://"); ok {
		address, security = rest, credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.Contains(address, "/") {
		return "", nil, fmt.Errorf("%q is not an endpoint: want host:port, like 127.0.0.1:4317, "+
			"or with TLS grpcs://host:port", text)
	}
	return address, security, nil
}

// Add enqueues waits. It never blocks: waits that don't fit into the queue are dropped. It must not be called after
// Close.
func (e *Exporter) Add(list []join.Wait) {
	for len(list) > 0 {
		n := batch(list)
		select {
		case e.queue <- list[:n]:
		default:
			e.lose(&e.counts.Dropped, list[:n], n)
		}
		list = list[n:]
	}
}

// batch returns the number of waits at the start of list that fit into one request. It is at least 1 unless list is
// empty.
func batch(list []join.Wait) (n int) {
	const span = 400 // approximate bytes, without the process's texts
	services := make(map[*join.Service]bool)
	for size := 0; n < min(len(list), maxBatch); n++ {
		w := &list[n]
		if !services[w.Service] {
			services[w.Service] = true
			for _, a := range w.Service.Attributes {
				size += len(a.Key) + len(a.Value) + 20
			}
		}
		size += span + len(w.Service.Name)
		for _, f := range w.Frames {
			size += len(f) + 1
		}
		if size > maxBytes && n > 0 {
			break
		}
	}
	return n
}

// Counts returns the counts so far.
func (e *Exporter) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// maxUnsent is the maximum number of tracepoints that Unsent returns.
const maxUnsent = 10_000

// Unsent returns the number of waits that were dropped or failed since the previous call, by tracepoint. Receivers do
// not say which waits they reject, so all waits in the same request count.
func (e *Exporter) Unsent() map[string]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.unsent
	e.unsent = make(map[string]uint64)
	return all
}

// Close sends the waits in the queue, which takes at most timeout, and closes the connection.
func (e *Exporter) Close() error {
	close(e.queue)
	select {
	case <-e.done:
	case <-time.After(timeout):
	}
	e.stop()
	<-e.done
	if err := e.connection.Close(); err != nil {
		return fmt.Errorf("close the connection for waits: %w", err)
	}
	return nil
}

// run sends until the queue is closed.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.done)
	var last string
	for list := range e.queue {
		err := e.send(ctx, list)
		if err == nil {
			last = ""
			continue
		}
		if _, counted := errors.AsType[*rejectedError](err); !counted {
			e.lose(&e.counts.Failed, list, len(list))
		}
		if text := err.Error(); text != last { // a receiver that is away fails every time
			e.log.WarnContext(ctx, "waits could not be sent", slog.Any("error", err))
			last = text
		}
	}
}

// rejectedError means that a receiver accepted only a part of a request.
type rejectedError struct {
	spans   int64
	message string // of the receiver
}

// Error implements error.
func (e *rejectedError) Error() string {
	return fmt.Sprintf("the receiver rejected %d of them: %q", e.spans, e.message)
}

func (e *Exporter) send(ctx context.Context, list []join.Wait) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if e.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+e.token)
	}
	offset, err := clockOffset()
	if err != nil {
		return err
	}
	answer, err := e.client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(traces(list, offset, e.syscall)))
	if err != nil {
		return err
	}
	if n := answer.PartialSuccess().RejectedSpans(); n > 0 {
		e.lose(&e.counts.Failed, list, int(min(n, int64(len(list)))))
		e.count(&e.counts.Sent, len(list)-int(min(n, int64(len(list)))))
		return &rejectedError{n, answer.PartialSuccess().ErrorMessage()}
	}
	e.count(&e.counts.Sent, len(list))
	return nil
}

// lose adds n to counter, and counts all waits in list as unsent.
func (e *Exporter) lose(counter *uint64, list []join.Wait, n int) {
	e.count(counter, n)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range list {
		id := waits.TracepointID(list[i].Service.Name, list[i].Part.Class)
		if _, known := e.unsent[id]; known || len(e.unsent) < maxUnsent {
			e.unsent[id]++
		}
	}
}

func (e *Exporter) count(counter *uint64, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*counter += uint64(max(n, 0))
}

var errClock = errors.New("read the clock")
