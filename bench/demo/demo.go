// Package demo runs an application with a fault together with Sibyl, and reports the progress of the search. The
// application is package shop. Its processes run this program again; the server is the sibyl program. All processes
// listen on free ports of the loopback interface, keep their files in a temporary directory, and exit when this process
// exits.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/steer"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/demo/springcatalog"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Hidden commands of this program, for the processes of a demo.
const (
	ShopCommand       = "demo-shop"       // runs [shop.Run]
	SupervisedCommand = "demo-supervised" // runs [Supervise] with a directory or "", a program and its arguments
)

// Options configures a demo.
type Options struct {
	Program       string     // path of this program, which must have the commands above
	Sibyl         string     // path of the sibyl program
	HTTP          string     // address of the API and UI; if it is empty or in use, a free port of loopback
	Environment   []string   // of this process
	Fault         shop.Fault // empty: Seed selects one
	Seed          uint64
	DataDir       string                  // of the server; empty: a temporary directory
	Strategy      string                  // of the search; empty: the default
	Learning      time.Duration           // healthy time before the fault
	Past          time.Duration           // of the shop, made of its first requests; may be 0
	Hold          time.Duration           // after the answer, to see more incidents
	Timeout       time.Duration           // of the search, from the injection of the fault
	Kernel        Kernel                  // whether to run the kernel agent
	Java          *springcatalog.Programs // of the service in Java; nil: all services are in Go
	ExitWhenFound bool                    // return after Done instead of when ctx ends
	Out           io.Writer               // for progress
	Done          func(*Result) error     // called once
}

// Kernel is the choice whether to run the kernel agent.
type Kernel int

// The choices.
const (
	WithoutKernel  Kernel = iota
	KernelIfUsable        // if it can observe processes here; otherwise the story says why not
	WithKernel
)

// ErrNotFound means that the fault was located in the wrong place, or not in time, or that an incident opened without
// a fault.
var ErrNotFound = errors.New("no correct answer in time")

const (
	offTimeout = 60 * time.Second // from the answer until its tracepoints are disabled and the kernel explains it

	// Times from the request to stop until a supervised program is killed, and until a process of the demo is killed.
	// The server needs less than the first to answer its last requests. The second also leaves time to remove files.
	exitTimeout = 30 * time.Second
	stopTimeout = exitTimeout + 2*removeTimeout
)

// Run runs a demo until ctx ends or, with ExitWhenFound, until the result is known. In the second case, it returns
// [ErrNotFound] unless the result is correct.
func Run(ctx context.Context, o *Options) (err error) {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if d.Fault == "" {
		d.Fault = d.randomFault()
	}
	if err := d.start(ctx); err != nil {
		return interrupted(ctx, err)
	}
	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { d.load.run(background, d.peers[shop.Gateway][0], o.Seed) })
	running.Go(func() { d.follow(background) })
	result, err := d.observe(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := o.Done(result); err != nil {
		return err
	}
	if !o.ExitWhenFound {
		d.watcher.report("The shop keeps running. Ctrl-C ends the demo.")
		select {
		case <-ctx.Done():
			return nil
		case c := <-d.exited:
			return c.exitError()
		}
	}
	if !result.Correct {
		return ErrNotFound
	}
	return nil
}

// interrupted returns the cause of the end of ctx, because other errors may follow from it. If ctx has not ended, it
// returns err.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// follow passes events to the watcher until ctx ends.
func (d *demo) follow(ctx context.Context) {
	_ = d.server.events(ctx, func(e contract.Event) { d.watcher.handle(ctx, e) }) // d.exited reports the server's exit
}

// randomFault returns the fault that the seed selects. Faults that show only in the kernel need its agent.
func (d *demo) randomFault() shop.Fault {
	faults := shop.Faults()
	switch {
	case d.Java != nil:
		faults = shop.JavaFaults()
	case d.observesKernel:
		faults = shop.AllFaults()
	}
	return faults[rand.New(rand.NewPCG(d.Seed, 0)).IntN(len(faults))]
}

// newDemo returns a demo with a new directory for its files. Close it after use.
func newDemo(o *Options) (*demo, error) {
	var missing error
	if o.Kernel != WithoutKernel {
		_, missing = kernel.Check()
	}
	if o.Kernel == WithKernel && missing != nil {
		return nil, missing
	}
	dir, err := os.MkdirTemp("", "sibyl-demo-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary directory: %w", err)
	}
	return &demo{
		Options:        o,
		dir:            dir,
		truth:          filepath.Join(dir, "truth.json"),
		exited:         make(chan *child, 2+len(shop.Services())),
		observesKernel: o.Kernel != WithoutKernel && missing == nil,
		unobserved:     missing,
	}, nil
}

// demo is a run in progress.
type demo struct {
	*Options
	dir, truth     string
	server         *server
	past           *past // nil if the shop has no past
	shop           []*child
	observed       []int               // IDs of the processes that the kernel agent observes
	kernel         *child              // the kernel agent; may be nil
	observesKernel bool                // the kernel agent runs
	unobserved     error               // why it doesn't, although it should; otherwise nil
	ending         atomic.Bool         // close was called
	peers          map[string][]string // addresses of the replicas of each service
	exited         chan *child         // receives each process when it exits
	load           load
	watcher        *watcher
	noAgents       bool // the shop gets no plans from the server
}

// start starts all processes.
func (d *demo) start(ctx context.Context) error {
	environment := plainEnvironment(d.Environment)
	dataDir := d.DataDir
	if dataDir == "" {
		dataDir = filepath.Join(d.dir, "data")
	}
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	if d.server, err = startServer(ctx, d.Options, d.dir, dataDir, environment); err != nil {
		return err
	}
	d.watchExit(d.server.child)
	d.watcher = newWatcher(d.server, d.Out)
	fmt.Fprintf(d.Out, "Open %s: Sibyl is watching a shop of eight services. Ctrl-C ends the demo.\n\n", d.server.url())
	otlp := d.server.otlp
	if d.Past > 0 {
		if d.past, err = startPast(ctx, otlp); err != nil {
			return err
		}
		otlp = d.past.address()
	}
	if err := d.startShop(environment, otlp); err != nil {
		return err
	}
	if d.unobserved != nil {
		d.watcher.report("Without the kernel agent, which would tell what threads wait for: %s.",
			firstLine(d.unobserved))
	}
	if !d.observesKernel {
		return nil
	}
	return d.startKernelAgent(environment)
}

// firstLine returns the first line of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// ofService returns environment with variables that name the service and its instance, for the kernel agent.
func ofService(environment []string, name string, instance int) []string {
	return append(slices.Clone(environment), "OTEL_SERVICE_NAME="+name,
		fmt.Sprintf("OTEL_RESOURCE_ATTRIBUTES=service.instance.id=%s-%d", name, instance))
}

// startKernelAgent starts the kernel agent for the processes of the shop, with its default settings.
func (d *demo) startKernelAgent(environment []string) error {
	arguments := []string{
		SupervisedCommand, "", d.Sibyl, "agent", "kernel", "--sibyl", d.server.url(),
		"--otlp", d.server.otlp,
	}
	for _, pid := range d.observed {
		arguments = append(arguments, "--pid", strconv.Itoa(pid))
	}
	c, err := start("kernel-agent", d.Program, d.dir, environment, arguments...)
	if err != nil {
		return err
	}
	d.kernel = c
	if d.Options.Kernel == WithKernel {
		d.watchExit(c)
	} else {
		d.watchKernelAgent(c)
	}
	d.watcher.report("The kernel agent can observe why their threads wait.")
	return nil
}

// watchKernelAgent reports the exit of an agent that the demo can do without: the kernel may refuse the probes although
// nothing seemed to be missing.
func (d *demo) watchKernelAgent(c *child) {
	go func() { // ends with the process
		<-c.exited
		if c.err != nil && !d.ending.Load() {
			d.watcher.report("The demo goes on without the kernel agent. %s", firstLine(c.err))
		}
	}()
}

// watchExit sends c to d.exited when it exits.
func (d *demo) watchExit(c *child) {
	go func() { // ends with the process
		<-c.exited
		d.exited <- c
	}()
}

// startShop starts the processes of the shop, which send their spans to an address, and tells each the addresses of the
// others.
func (d *demo) startShop(environment []string, otlp string) error {
	d.peers = make(map[string][]string)
	instances := make(map[string]int)
	for _, name := range shop.Services() {
		c, err := start(fmt.Sprintf("%s-%d", name, instances[name]), d.Program, d.dir,
			ofService(environment, name, instances[name]), ShopCommand)
		if err != nil {
			return err
		}
		d.shop = append(d.shop, c)
		d.watchExit(c)
		setup := &shop.Setup{
			Service: name, Instance: instances[name], Dir: d.dir, Truth: d.truth, OTLP: otlp, Control: d.server.url(),
			Labels: d.observesKernel,
		}
		if name == shop.JavaService && d.Java != nil {
			if setup.Java, err = d.java(environment); err != nil {
				return err
			}
		}
		if d.noAgents {
			setup.Control = ""
		}
		var reply shop.Reply
		if err := c.send(shop.Command{Setup: setup}, &reply); err != nil {
			return err
		}
		instances[name]++
		d.observed = append(d.observed, cmp.Or(reply.Process, c.command.Process.Pid))
		d.peers[name] = append(d.peers[name], reply.Address)
		if reply.Resolver != "" {
			d.peers[shop.Resolver] = []string{reply.Resolver}
		}
	}
	for _, c := range d.shop {
		if err := c.send(shop.Command{Peers: d.peers}, new(shop.Reply)); err != nil {
			return err
		}
	}
	d.watcher.report("%d processes of the shop are running.", len(d.shop))
	return nil
}

// observe waits for the end of the healthy time, injects the fault, and waits for the answer.
func (d *demo) observe(ctx context.Context) (*Result, error) {
	d.watcher.report("Customers arrive. Sibyl watches the healthy shop for %s.", d.Learning)
	if err := d.learn(ctx); err != nil {
		return nil, err
	}
	before, err := d.report(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.inject(); err != nil {
		return nil, err
	}
	if d.Fault == shop.None {
		d.watcher.report("No fault was injected. Sibyl is not told.")
	} else {
		d.watcher.report("A fault was injected into the shop. Sibyl is not told. An incident opens when requests " +
			"have been slow for about two minutes.")
	}
	timeout := time.After(d.Timeout)
	select {
	case <-d.watcher.located:
		d.waitExplained(ctx)
		d.waitOff(ctx)
		if err := d.sleep(ctx, d.Hold); err != nil {
			return nil, err
		}
	case <-timeout:
	case c := <-d.exited:
		return nil, c.exitError()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := d.report(ctx)
	if err != nil {
		return nil, err
	}
	return d.result(before, after), nil
}

// compiling is the time in which customers use the shop unseen, until the compiler of the JVM has made it fast.
// Otherwise the past would consist of slow requests.
const compiling = 30 * time.Second

// learn waits for the end of the healthy time, even if the data directory has a learned state, and sends the past.
func (d *demo) learn(ctx context.Context) error {
	if err := d.makePast(ctx); err != nil {
		return err
	}
	return d.settle(ctx)
}

// recording returns the length of the part of the healthy time whose requests make the past, or the whole healthy time
// if there is no past.
func (d *demo) recording() time.Duration {
	if d.Past > 0 {
		return d.Learning * 2 / 3
	}
	return d.Learning
}

// makePast waits for the requests that make up the past, and sends them to the server.
func (d *demo) makePast(ctx context.Context) error {
	if d.past != nil {
		if d.Java != nil {
			if err := d.sleep(ctx, compiling); err != nil {
				return err
			}
		}
		d.past.begin()
	}
	if err := d.sleep(ctx, d.recording()); err != nil || d.past == nil {
		return err
	}
	if err := d.past.repeat(ctx, d.Past); err != nil {
		return err
	}
	d.watcher.report("Sibyl received the requests of these %s again, as those of the last %s: "+
		"incidents need a history.", d.recording(), units.Duration(d.Past))
	return nil
}

// settle waits for the rest of the healthy time. If there is a past, it also waits until the server has learned, which
// would otherwise take minutes.
func (d *demo) settle(ctx context.Context) error {
	if err := d.sleep(ctx, d.Learning-d.recording()); err != nil || d.past == nil {
		return err
	}
	return d.server.waitLearned(ctx)
}

// sleep waits. It returns an error if a process exits or ctx ends.
func (d *demo) sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case c := <-d.exited:
		return c.exitError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inject injects the fault into the shop.
func (d *demo) inject() error {
	d.watcher.begin()
	if d.Fault == shop.None {
		return nil
	}
	injected := false
	for _, c := range d.shop {
		var reply shop.Reply
		if err := c.send(shop.Command{Inject: &shop.Injection{Fault: d.Fault, Seed: d.Seed}}, &reply); err != nil {
			return err
		}
		if reply.Error != "" {
			return fmt.Errorf("%s: %s", c.name, reply.Error)
		}
		injected = injected || reply.Injected
	}
	if !injected {
		return errors.New("no process of the shop injected the fault")
	}
	truth, err := readTruth(d.truth)
	if err != nil {
		return err
	}
	d.watcher.expect(truth)
	return nil
}

// readTruth reads the location of the fault, which the process that injected it has written.
func readTruth(path string) (*shop.Truth, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the location of the fault: %w", err)
	}
	truth := new(shop.Truth)
	if err := json.Unmarshal(data, truth); err != nil {
		return nil, fmt.Errorf("decode the location of the fault: %w", err)
	}
	return truth, nil
}

// waitExplained waits, at most for offTimeout, until the kernel explains a fault that makes threads wait.
func (d *demo) waitExplained(ctx context.Context) {
	if !d.observesKernel || len(shop.WaitsOf(d.Fault)) == 0 {
		return
	}
	select {
	case <-d.watcher.explained:
	case <-time.After(offTimeout):
	case <-ctx.Done():
	}
}

// waitOff waits, at most for offTimeout, until no tracepoint is enabled for an incident.
func (d *demo) waitOff(ctx context.Context) {
	deadline := time.After(offTimeout)
	for !d.watcher.allOff() {
		select {
		case <-time.After(time.Second):
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// report returns the sum of the reports of the shop's processes.
func (d *demo) report(ctx context.Context) (*shop.Report, error) {
	sum := &shop.Report{}
	counted := make(map[string]int) // replicas have the same tracepoints
	for i, c := range d.shop {
		r, err := c.report()
		if err != nil {
			return nil, err
		}
		sum.Spans += r.Spans
		sum.Extra += r.Extra
		sum.CPU += r.CPU
		name := shop.Services()[i]
		counted[name] = max(counted[name], r.Tracepoints)
	}
	for _, n := range counted {
		sum.Tracepoints += n
	}
	if d.Java != nil { // it doesn't say which of them requests execute
		sum.Tracepoints += d.offered(ctx, shop.JavaService)
	}
	if d.observesKernel {
		sum.Tracepoints += d.offered(ctx, steer.ServiceName)
	}
	return sum, nil
}

// result compares the answer with the location of the fault.
func (d *demo) result(before, after *shop.Report) *Result {
	w := d.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Result{
		Fault:            d.Fault,
		Incidents:        w.incidents,
		Seconds:          time.Since(w.since).Seconds(),
		Epochs:           w.epochs,
		Tracepoints:      after.Tracepoints,
		EnabledEver:      len(w.ever),
		EnabledPeak:      w.peak,
		RemainingEnabled: w.held,
		Requests:         d.load.requests.Load(),
		Failed:           d.load.failed.Load(),
		Seed:             d.Seed,
		largest:          w.largest,
	}
	if spans := after.Spans - before.Spans; spans > 0 {
		r.ExtraSpans = float64(after.Extra-before.Extra) / float64(spans)
	}
	if f := w.found; f != nil {
		r.Located, r.Edge, r.Seconds, r.Epochs = true, &f.edge, f.seconds, f.epochs
	}
	if d.Fault == shop.None {
		r.Correct = len(r.Incidents) == 0
		return r
	}
	r.Expected = &w.truth.Edge
	r.Correct = r.Located && w.truth.Located(r.Edge)
	if x := w.reason; x != nil {
		x.Correct = x.Service == w.truth.Service && slices.Contains(w.truth.Waits, x.Class)
		r.Wait = x
	}
	if d.observesKernel {
		r.ExpectedWaits = w.truth.Waits
	}
	return r
}

// close stops all processes and removes their files.
func (d *demo) close() error {
	var errs []error
	d.ending.Store(true)
	if d.kernel != nil {
		_ = d.kernel.stop(stopTimeout) // it fails if some waits could not be sent, which doesn't matter here
	}
	for _, c := range slices.Backward(d.shop) {
		errs = append(errs, c.stop(stopTimeout))
	}
	if d.past != nil {
		errs = append(errs, d.past.close())
	}
	if d.server != nil {
		errs = append(errs, d.server.stop(stopTimeout))
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
