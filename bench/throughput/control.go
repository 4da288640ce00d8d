package throughput

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// ControlOptions say how to measure [Control].
type ControlOptions struct {
	Program     string // that serves
	Agents      int
	Services    int
	Tracepoints int // on in each service
	Rounds      int // changes of the plan that are measured
	OpAMP       bool

	opamp string // address
}

// inCatalogue is how many tracepoints a service has for each that is on.
const inCatalogue = 3

// Control measures the control plane of a server in a process of its own: how long it takes until all agents, which are in this process, have
// a plan that changed, what memory the server takes, and how they come back when it was killed. Agents wait for plans, report what became of
// each, and wait longer after every failure, as the Go library does.
func Control(ctx context.Context, o ControlOptions) (*Result, error) {
	dir, err := os.MkdirTemp("", "sibyl-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the place for what may be left
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	if o.opamp, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	args := []string{"--http", address, "--opamp", o.opamp, "--epoch", "1s", "--learning", "0s"}
	way := "wait for plans over HTTP"
	if o.OpAMP {
		way = "are connected by WebSockets, with OpAMP"
	}
	server, err := startServer(ctx, o.Program, dir, []string{}, args)
	if err != nil {
		return nil, err
	}
	f := newFleet(o, address)
	working, stop := context.WithCancel(ctx)
	defer f.wait()
	defer stop()
	r := &Result{Benchmark: "control", Input: fmt.Sprintf("%d agents of %d services that %s, up to %d tracepoints of %d on in each; server and agents in separate processes on one machine",
		o.Agents, o.Services, way, o.Tracepoints, inCatalogue*o.Tracepoints)}
	began := time.Now()
	f.run(working)
	if err := f.until(ctx, func() bool { return int(f.registered.Load()) >= o.Agents }); err != nil {
		return nil, errors.Join(err, server.kill())
	}
	connected := time.Since(began).Seconds()
	r.add("all agents connect", Value{"connect_seconds", connected, units.Ratio(connected) + " s"})
	times, cpu, err := f.change(ctx, server, o)
	if err != nil {
		return nil, errors.Join(err, server.kill())
	}
	slices.Sort(times)
	middle, longest := times[len(times)/2].Seconds(), times[len(times)-1].Seconds()
	r.add("a change of the plan reaches all", Value{"median_seconds", middle, units.Ratio(middle) + " s in the median"},
		Value{"longest_seconds", longest, units.Ratio(longest) + " s at most"}, Value{"server_cpu_seconds", cpu.Seconds(), units.Ratio(cpu.Seconds()) + " s of the server's CPU each"}, Value{"changes", float64(len(times)), units.Count(len(times)) + " changes"})
	peak := memoryOf(server.cmd.Process.Pid, "VmHWM:")
	r.add("server's memory at the peak", Value{"peak_bytes", float64(peak), mebibytes(int(peak))})
	if err := f.comeBack(ctx, r, server, dir, args); err != nil {
		return nil, err
	}
	return r, nil
}

// freeAddress returns an address that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// kill ends the server at once.
func (p *served) kill() error {
	err := p.cmd.Process.Kill()
	for range p.lines { // until the log ends
	}
	_ = p.cmd.Wait() // it was killed
	return err
}

// fleet is the agents.
type fleet struct {
	o      ControlOptions
	base   string
	client *http.Client
	bodies [][]byte // registration, by service
	agents sync.WaitGroup

	catalogues [][]byte // by service, as OpAMP has them

	registered, requests, failed atomic.Int64
	mu                           sync.Mutex         // guards all below
	arrivals                     map[int64]*came    // by version of the plan
	plans                        map[string]applied // by hash
}

// applied is a plan that was read. The same one is read once, because what agents do with it they do on their own machines.
type applied struct {
	version int64
	status  []byte
}

// came says when a plan reached agents.
type came struct {
	n    int
	last time.Time
}

func newFleet(o ControlOptions, address string) *fleet {
	transport := &http.Transport{
		MaxIdleConns: 2 * o.Agents, MaxIdleConnsPerHost: 2 * o.Agents, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	}
	f := &fleet{o: o, base: "http://" + address, client: &http.Client{Transport: transport}, arrivals: make(map[int64]*came), plans: make(map[string]applied)}
	for i := range o.Services {
		r := registration(i, inCatalogue*o.Tracepoints)
		f.bodies = append(f.bodies, encoded(r))
		f.catalogues = append(f.catalogues, encoded(opamp.Catalogue{Catalogue: r.Catalogue, Tracepoints: r.Page.Tracepoints}))
	}
	return f
}

func serviceName(i int) string { return fmt.Sprintf("service-%02d", i) }

func pointID(service, point int) string {
	return fmt.Sprintf("%s/step.%04d", serviceName(service), point)
}

// registration returns a registration of a service with n tracepoints.
func registration(service, n int) *protocol.Registration {
	var all []protocol.Tracepoint
	for i := range min(n, protocol.PageSize) {
		all = append(all, protocol.Tracepoint{
			ID: pointID(service, i), Layer: protocol.App, Kind: protocol.SpanPoint, Service: serviceName(service), Scope: "example.com/" + serviceName(service),
			Operation: fmt.Sprintf("step %d", i), Owner: "GET /", OwnerKind: protocol.Server, CostNanos: 900, Bytes: 220,
		})
	}
	return &protocol.Registration{
		Protocol: protocol.Version, Session: "session", Resource: map[string]string{"service.name": serviceName(service), "host.name": "host", "service.version": "1"},
		Capabilities: []protocol.Capability{protocol.CanSpan, protocol.CanRate, protocol.CanFilter},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: len(all)}, Page: &protocol.Page{Tracepoints: all},
	}
}

func encoded(x any) []byte {
	data, err := json.Marshal(x)
	must(err) // texts and numbers
	return data
}

// run starts the agents; they end with ctx.
func (f *fleet) run(ctx context.Context) {
	for i := range f.o.Agents {
		f.agents.Go(func() {
			pause(ctx, rand.N(firstBackOff)) // programs do not start at the same instant
			if f.o.OpAMP {
				f.opampAgent(ctx, i)
			} else {
				f.agent(ctx, i)
			}
		})
	}
}

func (f *fleet) wait() { f.agents.Wait() }

// How agents wait after failures, as the Go library does.
const (
	firstBackOff = 500 * time.Millisecond
	lastBackOff  = 30 * time.Second
)

// agent is one agent, until ctx is done.
func (f *fleet) agent(ctx context.Context, i int) {
	path := protocol.Path + fmt.Sprintf("agent-%05d", i)
	has, known, delay := "", false, firstBackOff
	for ctx.Err() == nil {
		if !known {
			if code, _, _ := f.call(ctx, http.MethodPut, path, f.bodies[i%f.o.Services], ""); code == http.StatusOK {
				known = true
				f.registered.Add(1)
			}
		}
		code, answer, tag := 0, []byte(nil), ""
		if known {
			code, answer, tag = f.call(ctx, http.MethodGet, path+protocol.PlanPath+"?wait=30s&session=session", nil, has)
		}
		switch code {
		case http.StatusOK:
			has = strings.Trim(tag, `"`)
			plan := f.arrived(has, answer)
			_, _, _ = f.call(ctx, http.MethodPost, path+protocol.StatusPath, plan.status, "") // the next one makes up for it
			fallthrough
		case http.StatusNotModified:
			delay = firstBackOff
		case http.StatusNotFound:
			known, delay = false, firstBackOff // the server is there
			fallthrough
		default:
			f.failed.Add(1)
			pause(ctx, delay/2+rand.N(delay))
			delay = min(2*delay, lastBackOff)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// statusOf returns the report that a plan was applied.
func statusOf(plan *protocol.Plan) []byte {
	s := protocol.Status{Protocol: protocol.Version, Session: "session", Version: plan.Version, Hash: plan.Hash}
	seen := make(map[string]bool)
	for _, a := range plan.Arms {
		for _, t := range a.Tracepoints {
			if !seen[t.ID] {
				seen[t.ID] = true
				s.Tracepoints = append(s.Tracepoints, protocol.Outcome{ID: t.ID, State: protocol.Applied, Hits: 1000, Nanos: 900, Bytes: 220})
			}
		}
	}
	return encoded(s)
}

// call sends a request; code 0 stands for no answer. Tag is the answer's.
func (f *fleet) call(ctx context.Context, method, path string, body []byte, has string) (code int, answer []byte, tag string) {
	f.requests.Add(1)
	r, err := http.NewRequestWithContext(ctx, method, f.base+path, bytes.NewReader(body))
	must(err) // there is nothing wrong with it
	r.Header.Set("Content-Type", "application/json")
	if has != "" {
		r.Header.Set("If-None-Match", `"`+has+`"`)
	}
	a, err := f.client.Do(r)
	if err != nil {
		return 0, nil, ""
	}
	answer, err = io.ReadAll(a.Body)
	if err = errors.Join(err, a.Body.Close()); err != nil {
		return 0, nil, ""
	}
	return a.StatusCode, answer, a.Header.Get("ETag")
}

// arrived notes that an agent has a plan.
func (f *fleet) arrived(hash string, body []byte) applied {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	x, known := f.plans[hash]
	if !known {
		plan, err := protocol.DecodePlan(body)
		if err != nil || plan.Hash != hash {
			panic(fmt.Sprintf("plan %s: %v", hash, err)) // the server is wrong
		}
		x = applied{plan.Version, statusOf(plan)}
		f.plans[hash] = x
	}
	c := f.arrivals[x.version]
	if c == nil {
		c = &came{}
		f.arrivals[x.version] = c
	}
	c.n++
	c.last = now
	return x
}

// newest returns the newest version that reached anybody, how many have it, and when the last of them got it.
func (f *fleet) newest() (version int64, n int, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v, c := range f.arrivals {
		if v >= version {
			version, n, last = v, c.n, c.last
		}
	}
	return version, n, last
}

// patience is how long anything may take.
const patience = 3 * time.Minute

// until waits for something.
func (f *fleet) until(ctx context.Context, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			version, n, _ := f.newest()
			return fmt.Errorf("%d agents registered and %d have plan %d after %v", f.registered.Load(), n, version, patience)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// change has people change the plan, and returns how long it took from the end of the epoch, when it is decided, to the last agent, and what CPU time
// the server took for each.
func (f *fleet) change(ctx context.Context, server *served, o ControlOptions) (times []time.Duration, cpu time.Duration, err error) {
	if err := sendTrace(ctx, server.grpc); err != nil {
		return nil, 0, err
	}
	for service := range o.Services {
		for point := range o.Tracepoints - 1 {
			if err := f.override(ctx, service, point, `{"kind":"pin","force":true}`); err != nil {
				return nil, 0, err
			}
		}
	}
	everybody := func(after int64) func() bool {
		return func() bool {
			version, n, _ := f.newest()
			return version > after && n >= o.Agents
		}
	}
	if err := f.until(ctx, everybody(0)); err != nil {
		return nil, 0, err
	}
	began := cpuTime(server.cmd.Process.Pid)
	for round := range o.Rounds {
		pause(ctx, 3*time.Second) // until everybody waits again
		before, _, _ := f.newest()
		kind := `{"kind":"pin","force":true}`
		if round%2 == 1 {
			kind = `{"kind":"forbid"}`
		}
		if err := f.override(ctx, 0, o.Tracepoints, kind); err != nil {
			return nil, 0, err
		}
		decided := time.Now().Truncate(time.Second).Add(time.Second) // when the epoch ends
		if err := f.until(ctx, everybody(before)); err != nil {
			return nil, 0, err
		}
		_, _, last := f.newest()
		times = append(times, last.Sub(decided))
	}
	return times, (cpuTime(server.cmd.Process.Pid) - began) / time.Duration(o.Rounds), nil
}

// override puts an override of a tracepoint.
func (f *fleet) override(ctx context.Context, service, point int, what string) error {
	path := fmt.Sprintf("/api/v1/tracepoints/%016x", uint64(trace.SymbolOf([]byte(pointID(service, point)))))
	for deadline := time.Now().Add(patience); ; pause(ctx, 100*time.Millisecond) {
		code, answer, _ := f.call(ctx, http.MethodPut, path, []byte(what), "")
		switch {
		case code == http.StatusOK:
			return nil
		case code != http.StatusNotFound || time.Now().After(deadline): // the engine may not know it yet
			return fmt.Errorf("decide about %s: %d %s", pointID(service, point), code, answer)
		}
	}
}

// sendTrace sends a trace, without which nothing is decided.
func sendTrace(ctx context.Context, address string) error {
	var table trace.Table
	now := trace.Nanos(time.Now().UnixNano())
	op := table.Op(table.Symbol(serviceName(0)), table.Symbol("GET /"), trace.Server)
	t := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{{ID: 1, Op: op, Service: table.Symbol(serviceName(0)), Kind: trace.Server, Start: now, End: now + 1000}}}
	data, err := tracegen.Protobuf([]*trace.Trace{t}, &table)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		return err
	}
	_, err = export(ctx, conn, data)
	return errors.Join(err, conn.Close())
}

// comeBack kills the server, starts another on the same data, and measures until all agents have their plan again, and how many requests
// that took.
func (f *fleet) comeBack(ctx context.Context, r *Result, server *served, dir string, args []string) error {
	if err := server.kill(); err != nil {
		return err
	}
	pause(ctx, 10*time.Second)
	f.registered.Store(0)
	f.requests.Store(0)
	began := time.Now()
	again, err := startServer(ctx, f.o.Program, dir, []string{}, args)
	if err != nil {
		return err
	}
	started := time.Since(began).Seconds()
	busiest, before := int64(0), f.requests.Load()
	next := time.Now().Add(time.Second)
	err = f.until(ctx, func() bool {
		if now := time.Now(); now.After(next) {
			n := f.requests.Load()
			busiest, before, next = max(busiest, n-before), n, now.Add(time.Second)
		}
		return int(f.registered.Load()) >= f.o.Agents
	})
	took := time.Since(began).Seconds()
	requests := f.requests.Load()
	peak := memoryOf(again.cmd.Process.Pid, "VmHWM:")
	if err = cmp.Or(err, again.kill()); err != nil {
		return err
	}
	r.add("the server was killed and is back", Value{"start_seconds", started, units.Ratio(started) + " s to start"},
		Value{"converged_seconds", took, units.Ratio(took) + " s until all agents are, from the start"},
		Value{"requests_per_agent", float64(requests) / float64(f.o.Agents), units.Ratio(float64(requests)/float64(f.o.Agents)) + " requests an agent"},
		Value{"busiest_second_requests", float64(busiest), units.Count(int(busiest)) + " requests in the busiest second"},
		Value{"peak_bytes", float64(peak), mebibytes(int(peak))})
	return nil
}

// clockTick is the unit of times in /proc, the same on all architectures that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process used so far; 0 where the system does not say.
func cpuTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the name, which may hold blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64) // 0 if it is none
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}
