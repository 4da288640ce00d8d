// Package shop is an application to be observed: services that are processes of their own, speak HTTP and gRPC, use databases, locks, disks and
// a third party, and have tracepoints in all their functions. One of several faults can be made in them. What it does is real work.
//
// A process is told what to do by lines of JSON on its standard input, and answers each with one on its standard output. It ends when its
// input does, whatever way the other end came to leave.
package shop

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Order is what a process is told. One of its fields is set.
type Order struct {
	Setup  *Setup              `json:"setup,omitempty"`  // the first one
	Peers  map[string][]string `json:"peers,omitempty"`  // the second: addresses of the replicas of each service; begin to serve
	Inject *Injection          `json:"inject,omitempty"` // make a fault
	Report bool                `json:"report,omitempty"` // say what happened so far
	Apply  *Applied            `json:"apply,omitempty"`  // have this on, in a process that has no server
}

// Setup says which part of the shop a process is.
type Setup struct {
	Service  string `json:"service"`
	Instance int    `json:"instance"` // among the replicas of the service, from 0
	Dir      string `json:"dir"`      // for databases and logs
	Truth    string `json:"truth"`    // file that is written by whoever makes a fault, with the [Edge] where it will show
	OTLP     string `json:"otlp"`     // address that takes traces over gRPC
	Control  string `json:"control"`  // URL of the server that plans what is on; empty: there is none
}

// Injection is a fault and the seed that says where it is.
type Injection struct {
	Fault Fault  `json:"fault"`
	Seed  uint64 `json:"seed"`
}

// Applied is what is on.
type Applied struct {
	Plan *protocol.Plan `json:"plan"` // nil: the baseline
}

// Answer is what a process answers to an order.
type Answer struct {
	Address  string  `json:"address,omitempty"` // to setup: that it listens on
	Injected bool    `json:"injected,omitempty"`
	Report   *Report `json:"report,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// Report is what happened in a process.
type Report struct {
	Tracepoints int    `json:"tracepoints"` // functions and calls that were executed
	Spans       uint64 `json:"spans"`       // that ended
	Extra       uint64 `json:"extra"`       // of these, not baseline

	CPU time.Duration `json:"cpu_ns"` // that the process took
}

// service is one process of the shop.
type service struct {
	name      string
	instance  int
	dir       string
	truth     string
	endpoints map[string]step // by name of the entry span: "POST /path" or a method of gRPC
	functions []*function
	calls     map[string]*atomic.Bool // of other services: whether they were made
	files     []*os.File

	db          *sql.DB
	peers       map[string][]string
	client      *http.Client
	connections map[string]*grpc.ClientConn // by address
	provider    trace.TracerProvider
	propagator  propagation.TextMapPropagator
	telemetry   *telemetry

	fault atomic.Pointer[fault]
	large atomic.Pointer[string] // text with pictures
}

// Run is a process of the shop, from its first order until the input ends or ctx is done.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan Order)
	go func() { // ends with the input, or with the process
		defer close(orders)
		lines := json.NewDecoder(bufio.NewReader(in))
		for {
			var o Order
			if lines.Decode(&o) != nil {
				cancel()
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	first, ok := <-orders
	if !ok || first.Setup == nil {
		return errors.New("this command is for sibylbench demo, which tells it what to do")
	}
	s := &service{name: first.Setup.Service, instance: first.Setup.Instance, dir: first.Setup.Dir, truth: first.Setup.Truth, calls: make(map[string]*atomic.Bool)}
	err := s.run(ctx, first.Setup, orders, json.NewEncoder(out))
	return errors.Join(err, s.close(context.WithoutCancel(ctx)))
}

func (s *service) run(ctx context.Context, setup *Setup, orders <-chan Order, answers *json.Encoder) error {
	if err := s.observe(ctx, setup); err != nil {
		return err
	}
	if err := s.define(ctx); err != nil {
		return err
	}
	s.register()
	switch {
	case setup.Control == "":
		tracepoint.Default.SetService(s.name)
	case s.name != Outside:
		agent, err := tracepoint.Connect(ctx, tracepoint.WithEndpoint(setup.Control), tracepoint.WithResource(s.telemetry.resource...))
		if err != nil {
			return err
		}
		defer agent.Close()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := answers.Encode(Answer{Address: listener.Addr().String()}); err != nil {
		return errors.Join(fmt.Errorf("answer: %w", err), listener.Close())
	}
	second, ok := <-orders
	if !ok {
		return listener.Close()
	}
	s.peers = second.Peers
	if err := s.connect(); err != nil {
		return errors.Join(err, listener.Close())
	}
	stop := s.serve(listener)
	defer stop()
	if err := answers.Encode(Answer{}); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return s.obey(ctx, orders, answers)
}

// serve takes requests until stop is called.
func (s *service) serve(listener net.Listener) (stop func()) {
	ended := make(chan struct{})
	if speaksGRPC[s.name] {
		server := s.grpcServer()
		go func() { defer close(ended); _ = server.Serve(listener) }() // it returns when stopped
		return func() { server.Stop(); <-ended }
	}
	server := &http.Server{Handler: s.httpServer(), ReadHeaderTimeout: time.Minute}
	go func() { defer close(ended); _ = server.Serve(listener) }() // it returns when closed
	return func() { _ = server.Close(); <-ended }
}

// obey carries out orders until there are no more.
func (s *service) obey(ctx context.Context, orders <-chan Order, answers *json.Encoder) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case o, ok := <-orders:
			if !ok {
				return nil
			}
			if err := answers.Encode(s.answer(ctx, o)); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
	}
}

func (s *service) answer(ctx context.Context, o Order) Answer {
	switch {
	case o.Inject != nil:
		injected, err := s.inject(ctx, o.Inject)
		if err != nil {
			return Answer{Error: err.Error()}
		}
		return Answer{Injected: injected}
	case o.Apply != nil:
		if err := tracepoint.Default.Apply(o.Apply.Plan); err != nil {
			return Answer{Error: err.Error()}
		}
		return Answer{}
	case o.Report:
		return Answer{Report: s.report()}
	}
	return Answer{Error: "an order that is not understood"}
}

func (s *service) report() *Report {
	r := &Report{Spans: s.telemetry.spans.Load(), Extra: s.telemetry.extra.Load()}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil { // it never fails for the process itself
		r.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	for _, f := range s.functions {
		if f.executed.Load() {
			r.Tracepoints++
		}
	}
	for _, made := range s.calls {
		if made.Load() {
			r.Tracepoints++
		}
	}
	return r
}

// closeTimeout is how long a process that ends tries to send its last spans.
const closeTimeout = 2 * time.Second

func (s *service) close(ctx context.Context) error {
	var errs []error
	for _, c := range s.connections {
		errs = append(errs, c.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	if s.telemetry != nil {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		_ = s.telemetry.provider.Shutdown(ctx) // the server may be gone already
	}
	return errors.Join(errs...)
}
