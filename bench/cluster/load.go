package cluster

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// load sends the traces of a simulated application as they happen, to the first replica that accepts them and, each
// trace once more, to a process that is alone.
type load struct {
	app      *sim.App
	replicas []*replica
	alone    *replica
	client   *http.Client

	sent         atomic.Int64 // traces
	acknowledged atomic.Int64 // by a replica
	single       atomic.Int64 // by the process that is alone
	bytes        atomic.Int64
	first        atomic.Int32 // index of the replica that accepted the last request
}

const (
	// batch is the time between two requests.
	batch = 200 * time.Millisecond
	// pastBatch is the time that a request covers while the past is sent.
	pastBatch = 5 * time.Second
	// strength makes the fault strong enough for an incident while the replicas are disturbed.
	strength = 4
	// giveUp is the time for which a request is repeated.
	giveUp = 2 * time.Minute
)

// newLoad returns a load of about rate traces a second.
func newLoad(seed uint64, rate float64, replicas []*replica, alone *replica) *load {
	app := sim.Config{
		Seed:        seed,
		Fault:       sim.SlowPath,
		Strength:    strength,
		Tracepoints: 100,
		Rate:        rate,
		Async:       -1, // work after the response would be requests of its own
		Messages:    -1,
	}
	return &load{
		app:      sim.New(app),
		replicas: replicas,
		alone:    alone,
		client:   &http.Client{Timeout: 5 * time.Second},
	}
}

// run sends traces until ctx is done, and then waits for the answers. It first sends the traces of the given past, as
// fast as they are accepted. The fault begins at the time that arrives from inject.
func (l *load) run(ctx context.Context, past time.Duration, inject <-chan trace.Nanos) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	patient := context.WithoutCancel(ctx) // what was sent once is repeated until it is acknowledged
	for from := trace.Nanos(time.Now().Add(-past).UnixNano()); ctx.Err() == nil; {
		select {
		case at := <-inject:
			l.app.Inject(at)
		default:
		}
		to := from.Add(batch)
		behind := time.Since(time.Unix(0, int64(from))) > pastBatch
		if behind {
			to = from.Add(pastBatch)
		}
		sleep(ctx, time.Until(time.Unix(0, int64(to))))
		var traces []*trace.Trace
		for t := range l.app.Requests(from, to, &sim.Plan{}) {
			traces = append(traces, &trace.Trace{ID: t.ID, Spans: append([]trace.Span(nil), t.Spans...)})
		}
		from = to
		if len(traces) == 0 {
			continue
		}
		body, err := tracegen.Protobuf(traces, l.app.Table())
		if err != nil {
			return err
		}
		n := int64(len(traces))
		l.sent.Add(n)
		l.bytes.Add(int64(len(body)))
		sending.Go(func() {
			if l.send(patient, body) {
				l.acknowledged.Add(n)
			}
		})
		sending.Go(func() {
			if l.post(patient, l.alone, body) {
				l.single.Add(n)
			}
		})
		if behind {
			sending.Wait()
		}
	}
	return nil
}

// send repeats a request until a replica accepts it.
func (l *load) send(ctx context.Context, body []byte) bool {
	for until := time.Now().Add(giveUp); time.Now().Before(until); sleep(ctx, batch/4) {
		for k := range l.replicas {
			i := (int(l.first.Load()) + k) % len(l.replicas)
			if l.post(ctx, l.replicas[i], body) {
				l.first.Store(int32(i))
				return true
			}
		}
	}
	return false
}

// post sends a request to one replica, and reports whether it accepted it.
func (l *load) post(ctx context.Context, r *replica, body []byte) bool {
	url := "http://" + r.otlp + "/v1/traces"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	answer, err := l.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection can be used again
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
