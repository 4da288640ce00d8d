package throughput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Times of a sustained load.
const (
	loadLearning  = 10 * time.Second // of the servers, by default
	learningLimit = 10 * time.Minute
	loadPeriod    = 5 * time.Second // between two samples
	statusPause   = 250 * time.Millisecond
	drainLimit    = time.Minute // until no trace is open
)

// connections is the number of connections that the senders share, like a few Collectors.
const connections = 4

// sustained holds the samples of a load that starts when all servers have learned.
type sustained struct {
	learned time.Duration // from the first request
	lasted  time.Duration // from then on
	servers []sampled
}

// sampled holds the samples of a server, one at the start and one at the end of each period.
type sampled struct {
	cpu     []time.Duration
	spans   []int64 // accepted
	memory  []int64 // resident bytes
	retries int64
	all     int64         // accepted spans since the start
	used    time.Duration // CPU time since the start
	peak    int64         // bytes of resident memory
}

// target is a server that gets the load.
type target struct {
	*server
	conns          []*grpc.ClientConn
	spans, retries atomic.Int64
}

// sustain sends requests until all servers have learned and then for o.Time, at least two periods. Every server gets
// every request; they take turns in being first. Each sender waits for all answers before it sends the next request.
// sustain returns once no trace is open.
func (l *load) sustain(ctx context.Context, servers []*server, o IngestOptions) (m *sustained, err error) {
	targets := make([]*target, len(servers))
	for i, s := range servers {
		conns, closeAll, err := s.connect(connections)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		targets[i] = &target{server: s, conns: conns}
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan error, 1)
	go func() { sent <- l.sendAll(sending, targets, o) }()
	m, err = sample(ctx, targets, o.Time)
	stop()
	if err := errors.Join(err, <-sent); err != nil {
		return nil, err
	}
	for i, t := range targets {
		if err := t.await(ctx, drainLimit, "traces stay open",
			func(learning bool, open int64) bool { return open == 0 }); err != nil {
			return nil, err
		}
		m.servers[i].retries, m.servers[i].all = t.retries.Load(), t.spans.Load()
	}
	for i, t := range targets { // at about the same time: servers stop one after the other
		m.servers[i].used, m.servers[i].peak = t.cpuTime(), t.memory(peakMemory)
	}
	return m, nil
}

// sample waits until all servers have learned, and samples them for length, but at least for two periods.
func sample(ctx context.Context, targets []*target, length time.Duration) (*sustained, error) {
	began := time.Now()
	for _, t := range targets {
		if err := t.await(ctx, learningLimit, "the server does not end its learning period",
			func(learning bool, _ int64) bool { return !learning }); err != nil {
			return nil, err
		}
	}
	m := &sustained{learned: time.Since(began), servers: make([]sampled, len(targets))}
	began = time.Now()
	for period := 0; ; period++ {
		for i, t := range targets {
			x := &m.servers[i]
			x.cpu, x.spans, x.memory = append(x.cpu, t.cpuTime()),
				append(x.spans, t.spans.Load()), append(x.memory, t.memory(residentMemory))
		}
		m.lasted = time.Since(began)
		if m.lasted >= length && period > 1 {
			return m, nil
		}
		select {
		case <-time.After(time.Until(began.Add(time.Duration(period+1) * periodOf(length)))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// periodOf returns the length of a period. Short loads, as in tests, have three periods.
func periodOf(length time.Duration) time.Duration { return min(loadPeriod, length/3) }

// await waits until holds returns true for the server's status. After limit, it returns an error that starts with
// otherwise.
func (t *target) await(ctx context.Context, limit time.Duration,
	otherwise string, holds func(learning bool, open int64) bool,
) error {
	api, err := client.New("http://"+t.api, "")
	if err != nil {
		return err
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		s, _, err := api.Status(ctx)
		if err == nil && holds(s.Learning.Active, s.Open.Traces) {
			return nil
		}
		select {
		case <-time.After(statusPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("%s within %s", otherwise, limit)
}

// sendAll sends requests to all targets until ctx is done.
func (l *load) sendAll(ctx context.Context, targets []*target, o IngestOptions) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, o.Senders)
	began := time.Now()
	for i := range o.Senders {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1) - 1
				pace(began, n, o.Rate)
				for k := range targets {
					errs[i] = cmp.Or(errs[i], l.sendTo(ctx, targets[(int(n)+k)%len(targets)], i, int(n)))
				}
			}
			if ctx.Err() != nil {
				errs[i] = nil // the request was interrupted
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// sendTo sends request n to t, again and again while t refuses it.
func (l *load) sendTo(ctx context.Context, t *target, sender, n int) error {
	request := l.request(n, 1)
	defer request.Free()
	again, err := export(ctx, t.conns[sender%connections], request)
	t.retries.Add(again)
	if err == nil {
		t.spans.Add(spansPerRequest)
	}
	return err
}

// total returns the CPU time and the spans of all periods.
func (x *sampled) total() (cpu time.Duration, spans int64) {
	last := len(x.cpu) - 1
	return x.cpu[last] - x.cpu[0], x.spans[last] - x.spans[0]
}

// report adds the rows of server i to r, with prefix before their names.
func (m *sustained) report(r *Result, i int, prefix string, used *usage) {
	x := &m.servers[i]
	cpu, n := x.total()
	spans, all, seconds := float64(n), float64(x.all), m.lasted.Seconds()
	r.add(prefix+"accepted", Value{"spans_per_second", spans / seconds, millions(spans/seconds) + " spans/s"},
		Value{"spans", spans, millions(spans) + " spans"}, Value{"seconds", seconds, units.Ratio(seconds) + " s"},
		Value{"retries", float64(x.retries), units.Count(int(x.retries)) + " retries"})
	r.add(prefix+"server CPU", Value{
		"cpu_seconds_per_million_spans", cpu.Seconds() / spans * 1e6,
		units.Ratio(cpu.Seconds()/spans*1e6) + " s per million spans",
	},
		Value{"cpu_seconds", x.used.Seconds(), units.Ratio(x.used.Seconds()) + " s in total, with learning"})
	r.add(prefix+"peak server memory", Value{"peak_bytes", float64(x.peak), mebibytes(int(x.peak))})
	r.add(prefix+"journal",
		Value{"commits", used.number("commits"), units.Count(int(used.number("commits"))) + " commits"},
		Value{"fsyncs", used.number("fsyncs"), units.Count(int(used.number("fsyncs"))) + " fsyncs"},
		Value{
			"journal_bytes_per_span", used.number("journal_bytes") / all,
			units.Ratio(used.number("journal_bytes")/all) + " bytes per span",
		})
}

// compare adds the ratios of the first server to the second, with intervals from the periods.
func (m *sustained) compare(r *Result) {
	a, b := &m.servers[0], &m.servers[1]
	var cpu, memory []float64 // logarithms of the ratios, by period
	for k := 1; k < len(a.cpu); k++ {
		each := func(x *sampled) float64 { return float64(x.cpu[k]-x.cpu[k-1]) / float64(x.spans[k]-x.spans[k-1]) }
		if ratio := each(a) / each(b); ratio > 0 && !math.IsInf(ratio, 0) { // infinite or 0 before the first answers
			cpu = append(cpu, math.Log(ratio))
		}
		memory = append(memory, math.Log(float64(a.memory[k])/float64(b.memory[k])))
	}
	r.add("CPU per span, ratio", ratioOf(cpu)...)
	r.add("resident memory, ratio", ratioOf(memory)...)
}

// ratioOf returns the geometric mean of ratios, with its 95 % interval. logs are their logarithms.
func ratioOf(logs []float64) []Value {
	mean, half := stat.Mean(logs, nil), math.NaN()
	if n := float64(len(logs)); n > 1 {
		half = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * stat.StdErr(stat.StdDev(logs, nil), n)
	}
	low, high := math.Exp(mean-half), math.Exp(mean+half)
	return []Value{
		{"ratio", math.Exp(mean), fmt.Sprintf("%.3f", math.Exp(mean))},
		{"low", low, fmt.Sprintf("%.3f", low)},
		{"high", high, fmt.Sprintf("to %.3f", high)},
		{"periods", float64(len(logs)), units.Plural(len(logs), "period")},
	}
}
