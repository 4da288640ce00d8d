package throughput

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/steer"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/units"
)

const (
	httpClients = 4   // requests at a time
	httpRounds  = 101 // many short ones, since the CPU time of a request depends on other users of the caches
)

// httpProbings lists the states of the kernel agent that are compared. The first one has no probes.
var httpProbings = []probing{
	{"nothing attached", func(...uint32) kernel.Spec { return kernel.Spec{} }},
	{"another process observed", func(...uint32) kernel.Spec {
		return observed(0, kernel.Target{Classes: waits.All}, 1)
	}},
	{"adaptive probes", func(own ...uint32) kernel.Spec {
		return steered(own[0], waits.File, waits.Sync, waits.Net, waits.Futex, waits.RunQueue)
	}},
	{"all classes", func(own ...uint32) kernel.Spec {
		all := make([]waits.Class, waits.NumClasses)
		for c := range all {
			all[c] = waits.Class(c)
		}
		return steered(own[0], all...)
	}},
}

// steered returns the specification with which an agent that Sibyl steers observes classes of a Go service.
func steered(pid uint32, classes ...waits.Class) kernel.Spec {
	t := kernel.Target{InSpans: true, Stacks: true, MaxEvents: 10_000}
	for _, c := range classes {
		t.Classes = t.Classes.With(c)
	}
	t.Events = t.Classes
	// The service publishes no name, and the probes don't need one.
	t.Context, _, _ = join.NewJoiner("/proc", "benchmark", "").Context(pid)
	return observed(uint64(100*time.Microsecond), t, pid)
}

// KernelHTTP measures the CPU time that the kernel agent adds to a request of a Go service over HTTP. Its states
// alternate, so that other work on the machine affects all of them.
func KernelHTTP(ctx context.Context, o Options) (_ *Result, err error) {
	o = o.withDefaults()
	probes, err := kernel.Open(kernel.Options{StackPeriod: steer.StackPeriod})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, probes.Close()) }()
	s, err := startService(ctx, o.Service)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rounds := httpRounds
	if o.Small {
		rounds = 1
	}
	times, probing := make([][]float64, len(httpProbings)), make([]float64, len(httpProbings))
	for round := range rounds + 2 { // the first one warms up; the last one measures the probes, which has a cost, too
		meter := kernel.NewMeter(probes)
		for i := range httpProbings {
			if err := probes.Apply(httpProbings[i].target(s.pid)); err != nil {
				return nil, err
			}
			if err := meter.Keep(round > rounds); err != nil {
				return nil, err
			}
			ns, elapsed, requests, err := s.play(ctx, o.Time/10)
			if err != nil {
				return nil, err
			}
			if round > 0 && round <= rounds {
				times[i] = append(times[i], ns)
			}
			cost, err := meter.Since()
			if err != nil {
				return nil, err
			}
			probing[i] = cost.CPUShare * float64(elapsed) / float64(requests)
			if err := errors.Join(meter.Close(), probes.Events(func(waits.Event) {})); err != nil {
				return nil, err
			}
		}
	}
	return httpResult(times, probing), nil
}

// httpResult returns the medians of the times, and of their ratios to the time without probes in the same round.
func httpResult(times [][]float64, probing []float64) *Result {
	r := &Result{Benchmark: "kernel-http", Input: fmt.Sprintf("requests of 2 KB of JSON over HTTP to a Go service, "+
		"%d at a time, CPU time of the service, medians of %d alternating rounds", httpClients, len(times[0]))}
	for i := range times {
		values := compared("request_ns", times[i], times[0])
		r.add(httpProbings[i].name, append(values,
			Value{"probes_ns", probing[i], units.Nanos(probing[i]) + " in probes"},
			Value{"probes", probing[i] / middle(times[0]), ""})...)
	}
	return r
}

// play sends requests for duration. It returns the service's mean CPU time per request in ns, the elapsed time, and the
// number of requests.
func (s *service) play(
	ctx context.Context, duration time.Duration,
) (ns float64, elapsed time.Duration, requests int64, err error) {
	before, err := s.cpuTime()
	if err != nil {
		return 0, 0, 0, err
	}
	var count atomic.Int64
	var clients sync.WaitGroup
	errs := make([]error, httpClients)
	begin := time.Now()
	for i := range errs {
		clients.Go(func() {
			for more := true; more; more = time.Since(begin) < duration && errs[i] == nil { // at least one
				errs[i] = s.request(ctx)
				count.Add(1)
			}
		})
	}
	clients.Wait()
	elapsed = time.Since(begin)
	after, err := s.cpuTime()
	if err := errors.Join(err, errors.Join(errs...)); err != nil {
		return 0, 0, 0, err
	}
	return float64(after-before) / float64(count.Load()), elapsed, count.Load(), nil
}

// request sends a request and reads the answer.
func (s *service) request(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
	if err != nil {
		return err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return err
}

// item is a part of the body of a request.
type item struct {
	Name     string
	Price    float64
	Quantity int
	Tags     []string
}

// items returns the body of a request.
func items() []item {
	all := make([]item, 20)
	for i := range all {
		all[i] = item{
			fmt.Sprintf("item %d", i*7919%1000), float64(i) * 1.25, i % 5, []string{"red", "large", "in stock"},
		}
	}
	return all
}

// price is the work of the service for a request.
func price(all []item) float64 {
	slices.SortFunc(all, func(a, b item) int { return cmp.Compare(a.Name, b.Name) })
	total := 0.0
	for _, x := range all {
		total += x.Price * float64(x.Quantity)
	}
	return total
}

// ServiceCommand is the hidden command of sibylbench that runs [Serve].
const ServiceCommand = "kernel-service"

// executable returns the command that runs the service of the benchmark.
func executable() ([]string, error) {
	own, err := os.Executable()
	return []string{own, ServiceCommand}, err
}
