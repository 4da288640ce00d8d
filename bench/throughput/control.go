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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// ControlOptions configures [Control].
type ControlOptions struct {
	Program     string // path of sibyl
	Agents      int
	Services    int
	Tracepoints int  // enabled in each service
	Rounds      int  // measured changes of the plan
	OpAMP       bool // connect agents over OpAMP instead of long polls

	opamp string // address
}

// catalogueFactor is the size of a service's catalogue relative to its enabled tracepoints.
const catalogueFactor = 3

// Control measures the control plane of a server, a separate process, with agents in this process: the time until a
// changed plan reaches all of them, the server's memory, and the reconnection of the agents after the server was
// killed. Agents wait for plans, report the result of each, and back off after failures, as the Go library does.
func Control(ctx context.Context, o ControlOptions) (*Result, error) {
	dir, remove, err := dataDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	if o.opamp, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	args := []string{"--http", address, "--opamp", o.opamp, "--epoch", "1s", "--learning", "0s"}
	transport := "long polls over HTTP"
	if o.OpAMP {
		transport = "OpAMP over WebSockets"
	}
	server, err := startServer(ctx, o.Program, dir, []string{}, args)
	if err != nil {
		return nil, err
	}
	f := newFleet(o, address)
	working, stop := context.WithCancel(ctx)
	defer f.wait()
	defer stop()
	r := &Result{Benchmark: "control", Input: fmt.Sprintf("%d agents of %d services, %s, "+
		"up to %d of %d tracepoints enabled in each; server and agents in separate processes on one machine",
		o.Agents, o.Services, transport, o.Tracepoints, catalogueFactor*o.Tracepoints)}
	began := time.Now()
	f.run(working)
	if err := f.waitUntil(ctx, f.allRegistered); err != nil {
		return nil, errors.Join(err, server.kill())
	}
	connected := time.Since(began).Seconds()
	r.add("all agents connect", Value{"connect_seconds", connected, units.Ratio(connected) + " s"})
	times, cpu, err := f.changePlan(ctx, server)
	if err != nil {
		return nil, errors.Join(err, server.kill())
	}
	median, longest := float64(eval.Median(times)), slices.Max(times)
	r.add("a changed plan reaches all agents", Value{"median_seconds", median, units.Ratio(median) + " s median"},
		Value{"longest_seconds", longest, units.Ratio(longest) + " s max"},
		Value{"server_cpu_seconds", cpu.Seconds(), units.Ratio(cpu.Seconds()) + " s of server CPU per change"},
		Value{"changes", float64(len(times)), units.Plural(len(times), "change")})
	r.addPeak(server.memory(peakMemory))
	if err := f.restart(ctx, r, server, dir, args); err != nil {
		return nil, err
	}
	return r, nil
}

// freeAddress returns an address that no process listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// fleet is a set of agents.
type fleet struct {
	o      ControlOptions
	base   string
	client *http.Client
	agents sync.WaitGroup

	registrations [][]byte // by service
	catalogues    [][]byte // the same for OpAMP

	registered, requests atomic.Int64

	mu       sync.Mutex             // guards the fields below
	arrivals map[int64]*arrivals    // by version of the plan
	plans    map[string]decodedPlan // by hash
}

// decodedPlan is a plan and the report that it was applied. The fleet decodes each plan only once, because real agents
// run on separate machines.
type decodedPlan struct {
	version int64
	status  []byte
}

// arrivals counts the agents that have received a plan.
type arrivals struct {
	n    int
	last time.Time
}

func newFleet(o ControlOptions, address string) *fleet {
	transport := &http.Transport{
		MaxIdleConns:        2 * o.Agents,
		MaxIdleConnsPerHost: 2 * o.Agents,
		ReadBufferSize:      4 << 10,
		WriteBufferSize:     4 << 10,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	}
	f := &fleet{
		o: o, base: "http://" + address, client: &http.Client{Transport: transport},
		arrivals: make(map[int64]*arrivals), plans: make(map[string]decodedPlan),
	}
	for i := range o.Services {
		r := registration(i, catalogueFactor*o.Tracepoints)
		f.registrations = append(f.registrations, encode(r))
		f.catalogues = append(f.catalogues,
			encode(opamp.Catalogue{Catalogue: r.Catalogue, Tracepoints: r.Page.Tracepoints}))
	}
	return f
}

func serviceName(i int) string { return fmt.Sprintf("service-%02d", i) }

func tracepointID(service, i int) string { return fmt.Sprintf("%s/step.%04d", serviceName(service), i) }

// registration returns a registration of a service with n tracepoints.
func registration(service, n int) *protocol.Registration {
	var all []protocol.Tracepoint
	for i := range min(n, protocol.PageSize) {
		all = append(all, protocol.Tracepoint{
			ID:        tracepointID(service, i),
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   serviceName(service),
			Scope:     "example.com/" + serviceName(service),
			Operation: fmt.Sprintf("step %d", i),
			Owner:     "GET /",
			OwnerKind: protocol.Server,
			CostNanos: 900,
			Bytes:     220,
		})
	}
	return &protocol.Registration{
		Protocol: protocol.Version,
		Session:  "session",
		Resource: map[string]string{
			"service.name": serviceName(service), "host.name": "host", "service.version": "1",
		},
		Capabilities: []protocol.Capability{protocol.CanSpan, protocol.CanRate, protocol.CanFilter},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: len(all)},
		Page:         &protocol.Page{Tracepoints: all},
	}
}

func encode(x any) []byte {
	data, err := json.Marshal(x)
	must(err) // x consists of strings and numbers
	return data
}

// run starts the agents, which stop when ctx ends.
func (f *fleet) run(ctx context.Context) {
	for i := range f.o.Agents {
		f.agents.Go(func() {
			sleep(ctx, rand.N(firstBackoff)) // real programs do not start at the same instant either
			if f.o.OpAMP {
				f.opampAgent(ctx, i)
			} else {
				f.agent(ctx, i)
			}
		})
	}
}

// wait waits until all agents have stopped.
func (f *fleet) wait() { f.agents.Wait() }

func (f *fleet) allRegistered() bool { return int(f.registered.Load()) >= f.o.Agents }

// Limits on the backoff after failures, as in the Go library.
const (
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 30 * time.Second
)

// agent runs an agent until ctx ends.
func (f *fleet) agent(ctx context.Context, i int) {
	path := protocol.Path + fmt.Sprintf("agent-%05d", i)
	hash, registered, delay := "", false, firstBackoff
	for ctx.Err() == nil {
		if !registered {
			code, _, _ := f.call(ctx, http.MethodPut, path, f.registrations[i%f.o.Services], "")
			if code == http.StatusOK {
				registered = true
				f.registered.Add(1)
			}
		}
		code, answer, tag := 0, []byte(nil), ""
		if registered {
			code, answer, tag = f.call(ctx, http.MethodGet,
				path+protocol.PlanPath+"?wait=30s&session=session", nil, hash)
		}
		switch code {
		case http.StatusOK:
			hash = strings.Trim(tag, `"`)
			plan := f.received(hash, answer)
			// If it is lost, the next report repeats it.
			_, _, _ = f.call(ctx, http.MethodPost, path+protocol.StatusPath, plan.status, "")
			fallthrough
		case http.StatusNotModified:
			delay = firstBackoff
		case http.StatusNotFound:
			registered, delay = false, firstBackoff // the server works, but does not know the agent
			fallthrough
		default:
			sleep(ctx, delay/2+rand.N(delay))
			delay = min(2*delay, maxBackoff)
		}
	}
}

// appliedStatus returns the report that a plan was applied.
func appliedStatus(plan *protocol.Plan) []byte {
	s := protocol.Status{Protocol: protocol.Version, Session: "session", Version: plan.Version, Hash: plan.Hash}
	seen := make(map[string]bool)
	for _, a := range plan.Arms {
		for _, t := range a.Tracepoints {
			if !seen[t.ID] {
				seen[t.ID] = true
				s.Tracepoints = append(s.Tracepoints, protocol.Outcome{
					ID:    t.ID,
					State: protocol.Applied,
					Hits:  1000,
					Nanos: 900,
					Bytes: 220,
				})
			}
		}
	}
	return encode(s)
}

// call sends a request, conditional on the plan's hash unless that is "". It returns the status code, the answer's body
// and its ETag. The code is 0 if there is no answer.
func (f *fleet) call(
	ctx context.Context, method, path string, body []byte, hash string,
) (code int, answer []byte, tag string) {
	f.requests.Add(1)
	r, err := http.NewRequestWithContext(ctx, method, f.base+path, bytes.NewReader(body))
	must(err) // method and path are valid
	r.Header.Set("Content-Type", "application/json")
	if hash != "" {
		r.Header.Set("If-None-Match", `"`+hash+`"`)
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

// received records that an agent received the plan with the given hash, and returns the plan. It panics if the plan is
// invalid.
func (f *fleet) received(hash string, body []byte) decodedPlan {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.plans[hash]
	if !known {
		plan, err := protocol.DecodePlan(body)
		if err != nil || plan.Hash != hash {
			panic(fmt.Sprintf("invalid plan %s: %v", hash, err)) // a bug of the server
		}
		p = decodedPlan{plan.Version, appliedStatus(plan)}
		f.plans[hash] = p
	}
	a := f.arrivals[p.version]
	if a == nil {
		a = &arrivals{}
		f.arrivals[p.version] = a
	}
	a.n++
	a.last = now
	return p
}

// newest returns the newest version that an agent received, the number of agents that have it, and the time at which
// the last of them received it.
func (f *fleet) newest() (version int64, n int, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v, a := range f.arrivals {
		if v >= version {
			version, n, last = v, a.n, a.last
		}
	}
	return version, n, last
}

// timeout is the maximum time of a step of the benchmark.
const timeout = 3 * time.Minute

// waitUntil waits until done returns true. It returns an error after timeout or when ctx ends.
func (f *fleet) waitUntil(ctx context.Context, done func() bool) error {
	for deadline := time.Now().Add(timeout); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			version, n, _ := f.newest()
			return fmt.Errorf("%d agents registered and %d have plan %d after %v",
				f.registered.Load(), n, version, timeout)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Overrides of a tracepoint, as requests of the API.
const (
	forcedPin = `{"kind":"pin","force":true}`
	forbid    = `{"kind":"forbid"}`
)

// changePlan changes the plan by overrides, Rounds times. For each change it returns the seconds from the end of the
// epoch, when the engine decides, until the last agent received the plan. It also returns the server's mean CPU time
// per change.
func (f *fleet) changePlan(ctx context.Context, server *server) (times []float64, cpu time.Duration, err error) {
	if err := sendTrace(ctx, server.grpc); err != nil {
		return nil, 0, err
	}
	for service := range f.o.Services {
		for i := range f.o.Tracepoints - 1 {
			if err := f.override(ctx, service, i, forcedPin); err != nil {
				return nil, 0, err
			}
		}
	}
	allHaveNewer := func(than int64) func() bool {
		return func() bool {
			version, n, _ := f.newest()
			return version > than && n >= f.o.Agents
		}
	}
	if err := f.waitUntil(ctx, allHaveNewer(0)); err != nil {
		return nil, 0, err
	}
	began := server.cpuTime()
	for round := range f.o.Rounds {
		sleep(ctx, 3*time.Second) // until all agents wait for the next plan
		before, _, _ := f.newest()
		kind := forcedPin
		if round%2 == 1 {
			kind = forbid
		}
		if err := f.override(ctx, 0, f.o.Tracepoints, kind); err != nil {
			return nil, 0, err
		}
		decided := time.Now().Truncate(time.Second).Add(time.Second) // the end of the epoch
		if err := f.waitUntil(ctx, allHaveNewer(before)); err != nil {
			return nil, 0, err
		}
		_, _, last := f.newest()
		times = append(times, last.Sub(decided).Seconds())
	}
	return times, (server.cpuTime() - began) / time.Duration(f.o.Rounds), nil
}

// override sets the override of tracepoint i of a service.
func (f *fleet) override(ctx context.Context, service, i int, body string) error {
	path := fmt.Sprintf("/api/v1/tracepoints/%016x", uint64(trace.SymbolOf([]byte(tracepointID(service, i)))))
	for deadline := time.Now().Add(timeout); ; sleep(ctx, 100*time.Millisecond) {
		code, answer, _ := f.call(ctx, http.MethodPut, path, []byte(body), "")
		switch {
		case code == http.StatusOK:
			return nil
		// The catalogue may not have reached the engine yet.
		case code != http.StatusNotFound || time.Now().After(deadline):
			return fmt.Errorf("override %s: %d %s", tracepointID(service, i), code, answer)
		}
	}
}

// sendTrace sends one trace, because the engine decides nothing before it has received one.
func sendTrace(ctx context.Context, address string) error {
	var table trace.Table
	now := trace.Nanos(time.Now().UnixNano())
	op := table.Op(table.Symbol(serviceName(0)), table.Symbol("GET /"), trace.Server)
	t := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{{
		ID:      1,
		Op:      op,
		Service: table.Symbol(serviceName(0)),
		Kind:    trace.Server,
		Start:   now,
		End:     now + 1000,
	}}}
	data, err := tracegen.Protobuf([]*trace.Trace{t}, &table)
	if err != nil {
		return err
	}
	conn, err := dial(address)
	if err != nil {
		return err
	}
	_, err = export(ctx, conn, mem.SliceBuffer(data))
	return errors.Join(err, conn.Close())
}

// restart kills the server and starts another one ten seconds later with the same data. It measures the time and the
// requests until all agents are registered again.
func (f *fleet) restart(ctx context.Context, r *Result, server *server, dir string, args []string) error {
	if err := server.kill(); err != nil {
		return err
	}
	sleep(ctx, 10*time.Second)
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
	err = f.waitUntil(ctx, func() bool {
		if now := time.Now(); now.After(next) {
			n := f.requests.Load()
			busiest, before, next = max(busiest, n-before), n, now.Add(time.Second)
		}
		return f.allRegistered()
	})
	converged := time.Since(began).Seconds()
	requests := f.requests.Load()
	peak := again.memory(peakMemory)
	if err = cmp.Or(err, again.kill()); err != nil {
		return err
	}
	perAgent := float64(requests) / float64(f.o.Agents)
	r.add("restart after a kill", Value{"start_seconds", started, units.Ratio(started) + " s to start"},
		Value{"converged_seconds", converged, units.Ratio(converged) + " s until all agents are back"},
		Value{"requests_per_agent", perAgent, units.Ratio(perAgent) + " requests per agent"},
		Value{
			"busiest_second_requests", float64(busiest), units.Count(int(busiest)) + " requests in the busiest second",
		},
		Value{"peak_bytes", float64(peak), mebibytes(int(peak))})
	return nil
}
