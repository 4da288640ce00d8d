package throughput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gonum.org/v1/gonum/stat"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// Parameters of the overload and of its observation.
const (
	overloadSenders = 2048                  // maximum concurrent requests: several times the limit of the server
	overloadConns   = 16                    // with room for twice as many requests
	queryInterval   = 50 * time.Millisecond // between queries of the API
	memoryInterval  = time.Second           // between samples of the server's memory
	recoveryTime    = 12 * time.Second      // maximum length of the load afterwards
)

// Overload measures the behaviour of the whole service at factor times its capacity. First it measures the capacity
// with o.Senders senders, for a third of o.Time. Then it offers factor times as much for o.Time, and finally half of
// the capacity. Refused requests are not repeated. Server and load generator are separate processes on the same
// machine. The server is limited to one core, because otherwise the generator could not overload it. The result
// contains the rate that was really offered.
func Overload(ctx context.Context, o IngestOptions, factor float64) (*Result, error) {
	o.Options = o.withDefaults()
	load, err := newLoad(o.Options)
	if err != nil {
		return nil, err
	}
	var r *Result
	used, err := runServer(ctx, o.Program, []string{"GOMAXPROCS=1"}, o.Args, func(s *server) (err error) {
		r, err = o.overload(ctx, s, load, factor)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.addPeak(used.peak)
	return r, nil
}

func (o IngestOptions) overload(ctx context.Context, s *server, load *load, factor float64) (*Result, error) {
	conns, closeAll, err := s.connect(overloadConns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	offer := func(d time.Duration, senders int, rate float64) (*offerStats, error) {
		return load.offer(ctx, conns, d, senders, rate)
	}
	alone, err := offer(o.Time/3, o.Senders, 0)
	if err != nil {
		return nil, err
	}
	capacity := alone.perSecond(alone.accepted)
	m := s.monitor(ctx)
	over, err := offer(o.Time, overloadSenders, factor*capacity)
	m.stop()
	if err != nil {
		return nil, err
	}
	after, err := offer(min(recoveryTime, o.Time), o.Senders, capacity/2)
	if err != nil {
		return nil, err
	}

	r := &Result{Benchmark: "overload", Input: fmt.Sprintf("gRPC requests of %d spans with %s each; target: "+
		"%s times the capacity for %s",
		spansPerRequest, units.Plural(attributesPerSpan, "attribute"), units.Ratio(factor), o.Time)}
	r.add("capacity", alone.acceptedRate())
	offered := over.perSecond(over.accepted + over.refused)
	r.add("overload", Value{"offered_spans_per_second", offered, millions(offered) + " spans/s offered"},
		Value{"ratio", offered / capacity, units.Ratio(offered/capacity) + " times the capacity"}, over.acceptedRate())
	r.add("refused", Value{"refused", float64(over.refused), units.Count(int(over.refused)) + " requests"},
		Value{"without_hint", float64(over.withoutRetryInfo), units.Count(int(over.withoutRetryInfo)) +
			" without a retry delay"})
	r.add("GET /api/v1/problems", m.latency(0.5, "p50"), m.latency(0.99, "p99"), m.latency(1, "max"),
		Value{"answers", float64(len(m.latencies)), units.Count(len(m.latencies)) + " answers"},
		Value{"failed", float64(m.failed), units.Count(m.failed) + " failed"})
	row := Row{Name: "server memory by second, MiB"}
	for i, bytes := range m.memory {
		row.Values = append(row.Values,
			Value{fmt.Sprintf("bytes_at_%d_s", i), float64(bytes), units.Count(int(bytes >> 20))})
	}
	r.Rows = append(r.Rows, row)
	r.add("last refusal after the overload", Value{
		"seconds", after.lastRefusal.Seconds(), units.Ratio(after.lastRefusal.Seconds()) + " s",
	}, after.acceptedRate())
	return r, nil
}

// offerStats counts requests, each sent only once.
type offerStats struct {
	accepted, refused, withoutRetryInfo int64
	duration                            time.Duration
	lastRefusal                         time.Duration // since the start; 0 if there was no refusal
}

// perSecond returns the spans per second in n requests.
func (s *offerStats) perSecond(n int64) float64 {
	return float64(n*spansPerRequest) / s.duration.Seconds()
}

func (s *offerStats) acceptedRate() Value {
	x := s.perSecond(s.accepted)
	return Value{"taken_spans_per_second", x, millions(x) + " spans/s accepted"}
}

// offer sends requests, each once, for a duration d, at the given rate of spans per second.
func (l *load) offer(
	ctx context.Context, conns []*grpc.ClientConn, d time.Duration, senders int, rate float64,
) (*offerStats, error) {
	var next, accepted, refusals, withoutRetryInfo, last atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, senders)
	began := time.Now()
	round := l.offers.Add(1) << 16 // no trace ID appears in two calls
	for i := range senders {
		wg.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1) - 1
				pace(began, n, rate)
				request := l.request(int(n), round)
				err := exportOnce(ctx, conns[i%len(conns)], request)
				request.Free()
				switch {
				case err == nil:
					accepted.Add(1)
				case refused(err):
					refusals.Add(1)
					last.Store(int64(time.Since(began)))
					if !hasRetryInfo(err) {
						withoutRetryInfo.Add(1)
					}
				default:
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	s := &offerStats{
		accepted: accepted.Load(), refused: refusals.Load(), withoutRetryInfo: withoutRetryInfo.Load(),
		duration: time.Since(began), lastRefusal: time.Duration(last.Load()),
	}
	return s, errors.Join(append(errs, ctx.Err())...)
}

// hasRetryInfo reports whether a refusal contains a retry delay.
func hasRetryInfo(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		retry, ok := d.(*errdetails.RetryInfo)
		return ok && retry.GetRetryDelay().AsDuration() > 0
	})
}

// monitor queries the API of a server, and samples its memory, until it is stopped.
type monitor struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	// Read these once stop has returned.
	latencies []float64 // nanoseconds, of successful queries; ascending
	failed    int       // queries
	memory    []int64   // bytes, one per second
}

func (s *server) monitor(ctx context.Context) *monitor {
	m := &monitor{}
	running, cancel := context.WithCancel(ctx)
	m.cancel = cancel
	m.running.Go(func() {
		for sleep(running, queryInterval) {
			began := time.Now()
			if err := s.queryProblems(ctx); err == nil { // also the last, which may be the slowest
				m.latencies = append(m.latencies, float64(time.Since(began)))
			} else if ctx.Err() == nil {
				m.failed++
			}
		}
	})
	m.running.Go(func() {
		for ok := true; ok; ok = sleep(running, memoryInterval) {
			m.memory = append(m.memory, s.memory(residentMemory))
		}
	})
	return m
}

// stop ends the queries and waits for the last one.
func (m *monitor) stop() {
	m.cancel()
	m.running.Wait()
	slices.Sort(m.latencies)
}

// latency returns quantile q of the latencies.
func (m *monitor) latency(q float64, name string) Value {
	if len(m.latencies) == 0 {
		return Value{name + "_ns", 0, name + " unknown"}
	}
	x := stat.Quantile(q, stat.Empirical, m.latencies, nil)
	return Value{name + "_ns", x, name + " " + units.Nanos(x)}
}

// sleep waits for d. It returns false at once if ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// queryProblems requests the open problems and discards them.
func (s *server) queryProblems(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.api+"/api/v1/problems", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}
