// Package demo runs an application with a fault and a Sibyl that watches it, and reports the course of the search. The application is
// package shop; its processes run this program again, and the server runs the sibyl program. They listen on loopback at free ports, keep
// their files in a temporary directory, and end when this process does.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// Hidden commands of the program that the demo starts.
const (
	ShopCommand     = "demo-shop"     // runs [shop.Run]
	AttendedCommand = "demo-attended" // runs the program that follows a directory under [Attend]
)

// Options say what a demo does.
type Options struct {
	Program       string     // file of this program, which has the commands above
	Sibyl         string     // file of the sibyl program
	Environment   []string   // of this process
	Fault         shop.Fault // empty: chosen by Seed
	Seed          uint64
	DataDir       string        // of the server; empty: a temporary one
	Learning      time.Duration // until the fault
	Timeout       time.Duration
	ExitWhenFound bool
	Out           io.Writer // what happens, for people
	Done          func(*Result) error
}

// ErrNotFound is returned by [Run] when there was no right answer in time: the fault was not located or, without one, a problem was raised.
var ErrNotFound = errors.New("no answer in time")

const (
	offWithin  = 60 * time.Second // of the answer everything is off again
	stopWithin = 5 * time.Second  // of being told a process ends
)

// Run shows a demo until ctx is done or, if it is to exit then, the result is known.
func Run(ctx context.Context, o *Options) (err error) {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if d.Fault == "" {
		d.Fault = shop.Faults()[rand.New(rand.NewPCG(o.Seed, 0)).IntN(len(shop.Faults()))]
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { d.load.run(background, d.peers[shop.Gateway][0], o.Seed) })
	running.Go(func() {
		_ = d.server.events(background, func(e contract.Event) { d.watcher.hear(background, e) }) // its end is noticed by whoever waits for something
	})
	result, err := d.show(ctx)
	if err != nil {
		return err
	}
	if err := o.Done(result); err != nil {
		return err
	}
	if !o.ExitWhenFound {
		d.watcher.tell("still running, to be looked at: %s (Ctrl-C ends it)", d.server.url())
		select {
		case <-ctx.Done():
			return nil
		case c := <-d.died:
			return c.death()
		}
	}
	if !result.Correct && !result.Located || d.Fault == shop.None && !result.Correct {
		return ErrNotFound
	}
	return nil
}

// newDemo returns a demo that keeps what it needs in a new directory. It must be closed.
func newDemo(o *Options) (*demo, error) {
	dir, err := os.MkdirTemp("", "sibyl-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	return &demo{Options: o, dir: dir, truth: filepath.Join(dir, "truth.json"), died: make(chan *child, 1+len(shop.Services()))}, nil
}

// demo is one run.
type demo struct {
	*Options
	dir, truth string
	server     *server
	shop       []*child
	peers      map[string][]string // addresses of the replicas of each service
	died       chan *child         // gets every process that ends
	load       load
	watcher    *watcher
	unplanned  bool // the server does not say what is on in the shop
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
	d.attend(d.server.child)
	d.watcher = newWatcher(d.server, d.Out)
	d.watcher.tell("Sibyl is at %s", d.server.url())
	return d.startShop(environment)
}

// attend notices when a process ends.
func (d *demo) attend(c *child) {
	go func() { // ends with the process
		<-c.ended
		d.died <- c
	}()
}

// startShop starts the processes of the shop, all at once, and makes them known to each other.
func (d *demo) startShop(environment []string) error {
	d.peers = make(map[string][]string)
	instances := make(map[string]int)
	for _, name := range shop.Services() {
		c, err := start(fmt.Sprintf("%s-%d", name, instances[name]), d.Program, d.dir, environment, ShopCommand)
		if err != nil {
			return err
		}
		d.shop = append(d.shop, c)
		d.attend(c)
		setup := &shop.Setup{
			Service: name, Instance: instances[name], Dir: d.dir, Truth: d.truth, OTLP: d.server.otlp, Control: d.server.url(),
		}
		if d.unplanned {
			setup.Control = ""
		}
		var answer shop.Answer
		if err := c.tell(shop.Order{Setup: setup}, &answer); err != nil {
			return err
		}
		instances[name]++
		d.peers[name] = append(d.peers[name], answer.Address)
	}
	for _, c := range d.shop {
		if err := c.tell(shop.Order{Peers: d.peers}, new(shop.Answer)); err != nil {
			return err
		}
	}
	d.watcher.tell("%d processes of the shop are running", len(d.shop))
	return nil
}

// show lets the server learn, makes the fault, and waits for the answer.
func (d *demo) show(ctx context.Context) (*Result, error) {
	d.watcher.tell("customers come; Sibyl learns for %s what is normal", d.Learning)
	select { // also where the data directory holds what was learned before
	case <-time.After(d.Learning):
	case c := <-d.died:
		return nil, c.death()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := d.server.learned(ctx); err != nil {
		return nil, err
	}
	before, err := d.report()
	if err != nil {
		return nil, err
	}
	if err := d.inject(); err != nil {
		return nil, err
	}
	d.watcher.tell("something is wrong with the shop now, or maybe not: only the shop knows")
	timeout := time.After(d.Timeout)
	select {
	case <-d.watcher.located:
		d.waitOff(ctx)
	case <-timeout:
		d.watcher.end(ctx)
	case c := <-d.died:
		return nil, c.death()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := d.report()
	if err != nil {
		return nil, err
	}
	return d.result(before, after)
}

// inject has the shop make the fault.
func (d *demo) inject() error {
	d.watcher.begin()
	if d.Fault == shop.None {
		return nil
	}
	injected := false
	for _, c := range d.shop {
		var answer shop.Answer
		if err := c.tell(shop.Order{Inject: &shop.Injection{Fault: d.Fault, Seed: d.Seed}}, &answer); err != nil {
			return err
		}
		if answer.Error != "" {
			return fmt.Errorf("%s: %s", c.name, answer.Error)
		}
		injected = injected || answer.Injected
	}
	if !injected {
		return errors.New("no process of the shop has made the fault")
	}
	return nil
}

// waitOff waits until everything is off again, or long enough.
func (d *demo) waitOff(ctx context.Context) {
	deadline := time.After(offWithin)
	for !d.watcher.settled() {
		select {
		case <-time.After(time.Second):
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// report adds up what the processes of the shop report.
func (d *demo) report() (*shop.Report, error) {
	sum := &shop.Report{}
	counted := make(map[string]int) // tracepoints of the replicas of a service are the same
	for i, c := range d.shop {
		var answer shop.Answer
		if err := c.tell(shop.Order{Report: true}, &answer); err != nil {
			return nil, err
		}
		r := answer.Report
		if r == nil {
			return nil, fmt.Errorf("%s reports nothing", c.name)
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
	return sum, nil
}

// result judges what was found by what the shop wrote down.
func (d *demo) result(before, after *shop.Report) (*Result, error) {
	w := d.watcher
	w.lock.Lock()
	defer w.lock.Unlock()
	r := &Result{
		Fault: d.Fault, Seconds: time.Since(w.since).Seconds(), Epochs: w.epochs, Tracepoints: after.Tracepoints, EnabledEver: len(w.ever),
		EnabledPeak: w.peak, RemainingEnabled: w.on, Problems: w.problems, Requests: d.load.requests.Load(), Failed: d.load.failed.Load(), Seed: d.Seed,
		largest: w.largest,
	}
	if spans := after.Spans - before.Spans; spans > 0 {
		r.ExtraSpans = float64(after.Extra-before.Extra) / float64(spans)
	}
	if f := w.found; f != nil {
		r.Located, r.Edge, r.Seconds, r.Epochs = true, &f.edge, f.seconds, f.epochs
	}
	if d.Fault == shop.None {
		r.Correct = !r.Located && r.Problems == 0
		return r, nil
	}
	data, err := os.ReadFile(d.truth)
	if err != nil {
		return nil, fmt.Errorf("read what the fault was: %w", err)
	}
	if err := json.Unmarshal(data, &r.Expected); err != nil {
		return nil, fmt.Errorf("read what the fault was: %w", err)
	}
	r.Correct = r.Located && *r.Edge == *r.Expected
	return r, nil
}

// close ends all processes and removes what they kept.
func (d *demo) close() error {
	var errs []error
	for _, c := range slices.Backward(d.shop) {
		errs = append(errs, c.stop(stopWithin))
	}
	if d.server != nil {
		errs = append(errs, d.server.stop(stopWithin))
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
