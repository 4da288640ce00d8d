package throughput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// How the overload is made and looked at.
const (
	overloadSenders = 2048                  // requests that wait for their answers at the same time, at most: several times what the server lets in
	overloadConns   = 16                    // which have room for twice as many
	askEvery        = 50 * time.Millisecond // for the problems
	watchEvery      = time.Second           // for the memory
	recoveryTime    = 12 * time.Second      // for which half of the capacity is offered afterwards
)

// Overload measures what the whole service does when it is offered several times what it can take: first as much as it takes, for a
// third of the time, then factor times that, then half of it. Requests that are refused are not repeated. Server and load are processes of
// their own and share the machine; the server has one core of it, as it could not be offered enough otherwise. What is really offered is
// printed.
func Overload(ctx context.Context, o IngestOptions, factor float64) (*Result, error) {
	o.Options = o.withDefaults()
	load, err := newLoad(o.Options)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sibyl-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the place for what may be left
	p, err := startServer(ctx, o.Program, dir, []string{"GOMAXPROCS=1"}, o.Args)
	if err != nil {
		return nil, err
	}
	r, err := o.overload(ctx, p, load, factor)
	final, stopErr := p.stop()
	if err := errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	r.add("server's memory at the peak", Value{"peak_bytes", float64(final.peak), mebibytes(int(final.peak))})
	return r, nil
}

func (o IngestOptions) overload(ctx context.Context, p *served, load *load, factor float64) (*Result, error) {
	conns, closeAll, err := p.connect(overloadConns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	offer := func(d time.Duration, senders int, rate float64) (*offered, error) {
		return load.offer(ctx, conns, d, senders, rate)
	}
	able, err := offer(o.Time/3, o.Senders, 0)
	if err != nil {
		return nil, err
	}
	capacity := able.perSecond(able.taken)
	w := p.watch(ctx)
	over, err := offer(o.Time, overloadSenders, factor*capacity)
	answers, memory := w.stop()
	if err != nil {
		return nil, err
	}
	after, err := offer(min(recoveryTime, o.Time), o.Senders, capacity/2)
	if err != nil {
		return nil, err
	}

	r := &Result{Benchmark: "overload", Input: fmt.Sprintf("gRPC requests of %d spans with %s each; %s times the capacity is wanted for %s",
		spansOfRequest, units.Plural(attributesOfSpan, "attribute"), units.Ratio(factor), o.Time)}
	r.add("capacity", able.rate("taken", able.taken))
	r.add("overload", over.rate("offered", over.taken+over.refused), Value{
		"ratio", over.perSecond(over.taken+over.refused) / capacity,
		units.Ratio(over.perSecond(over.taken+over.refused)/capacity) + " times the capacity",
	}, over.rate("taken", over.taken))
	r.add("refused", Value{"refused", float64(over.refused), units.Count(int(over.refused)) + " requests"},
		Value{"without_hint", float64(over.unhinted), units.Count(int(over.unhinted)) + " of them without a time to wait"})
	r.add("GET /api/v1/problems", answers.quantile(0.5, "p50"), answers.quantile(0.99, "p99"), answers.quantile(1, "max"),
		Value{"answers", float64(len(answers.took)), units.Count(len(answers.took)) + " answers"},
		Value{"failed", float64(answers.failed), units.Count(answers.failed) + " failed"})
	row := Row{Name: "server's memory, MiB a second"}
	for i, bytes := range memory {
		row.Values = append(row.Values, Value{fmt.Sprintf("bytes_at_%d_s", i), float64(bytes), units.Count(int(bytes >> 20))})
	}
	r.Rows = append(r.Rows, row)
	r.add("last refusal after the overload", Value{"seconds", after.last.Seconds(), units.Ratio(after.last.Seconds()) + " s"}, after.rate("taken", after.taken))
	return r, nil
}

// connect opens so many connections that senders share.
func (p *served) connect(n int) (conns []*grpc.ClientConn, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close() // nothing is waiting on it
		}
	}
	for range n {
		c, err := dial(p.grpc)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return conns, closeAll, nil
}

// offered is what became of requests that were sent once each.
type offered struct {
	taken, refused, unhinted int64
	took                     time.Duration
	last                     time.Duration // from the beginning to the last refusal; 0: none
}

func (s *offered) perSecond(requests int64) float64 {
	return float64(requests*spansOfRequest) / s.took.Seconds()
}

func (s *offered) rate(key string, requests int64) Value {
	x := s.perSecond(requests)
	return Value{key + "_spans_per_second", x, millions(x) + " spans/s " + key}
}

// offer sends requests for some time, each once.
func (l *load) offer(ctx context.Context, conns []*grpc.ClientConn, d time.Duration, senders int, rate float64) (*offered, error) {
	var next, taken, refused, unhinted, last atomic.Int64
	var wg sync.WaitGroup
	var bufs sync.Pool // of *[]byte: most senders wait until it is their time
	errs := make([]error, senders)
	began := time.Now()
	round := l.rounds.Add(1) << 16 // so that no trace comes twice
	for i := range senders {
		wg.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1) - 1
				pace(began, n, rate)
				buf, _ := bufs.Get().(*[]byte)
				if buf == nil {
					buf = new([]byte)
				}
				*buf = l.copyOf(*buf, int(n)%len(l.data), round+uint32(int(n)/len(l.data)))
				var answer []byte
				err := conns[i%len(conns)].Invoke(ctx, exportMethod, *buf, &answer)
				bufs.Put(buf)
				switch code := status.Code(err); {
				case err == nil:
					taken.Add(1)
				case code == codes.Unavailable || code == codes.ResourceExhausted:
					refused.Add(1)
					last.Store(int64(time.Since(began)))
					if !hinted(err) {
						unhinted.Add(1)
					}
				default:
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	s := &offered{taken: taken.Load(), refused: refused.Load(), unhinted: unhinted.Load(), took: time.Since(began), last: time.Duration(last.Load())}
	return s, errors.Join(append(errs, ctx.Err())...)
}

// hinted reports whether a refusal says when to come again.
func hinted(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		retry, ok := d.(*errdetails.RetryInfo)
		return ok && retry.GetRetryDelay().AsDuration() > 0
	})
}

// answers is how long answers took.
type answers struct {
	took   []time.Duration
	failed int
}

func (a *answers) quantile(q float64, key string) Value {
	if len(a.took) == 0 {
		return Value{key + "_ns", 0, key + " not known"}
	}
	slices.Sort(a.took)
	x := a.took[min(len(a.took)-1, int(q*float64(len(a.took))))]
	return Value{key + "_ns", float64(x), key + " " + units.Duration(x)}
}

// watcher asks a server, and looks at its memory, until it is stopped.
type watcher struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	answers answers
	memory  []int64
}

func (p *served) watch(ctx context.Context) *watcher {
	w := &watcher{}
	ctx, w.cancel = context.WithCancel(ctx)
	w.running.Go(func() {
		for every(ctx, askEvery) {
			began := time.Now()
			if err := p.ask(ctx); err == nil {
				w.answers.took = append(w.answers.took, time.Since(began))
			} else if ctx.Err() == nil {
				w.answers.failed++
			}
		}
	})
	w.running.Go(func() {
		for ok := true; ok; ok = every(ctx, watchEvery) {
			w.memory = append(w.memory, memoryOf(p.cmd.Process.Pid, "VmRSS:"))
		}
	})
	return w
}

// every waits, and reports whether it is to go on.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ask asks for the open problems.
func (p *served) ask(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.api+"/api/v1/problems", nil)
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

// stop ends the watch and returns what was seen.
func (w *watcher) stop() (*answers, []int64) {
	w.cancel()
	w.running.Wait()
	return &w.answers, w.memory
}
