// Package shop is an application for demos of Sibyl. Each service is a separate process. The services communicate over
// HTTP and gRPC, use databases, locks, disks and a third party, and have tracepoints in all their functions. They do
// real work. One of several faults can be injected.
//
// A process reads commands from its standard input and writes a reply to each to its standard output, both as lines of
// JSON. It exits at the end of its input, and therefore also when its parent dies.
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
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// NeighbourCommand is the hidden command of this program that runs [Disturb]. Its argument is a CPU.
const NeighbourCommand = "demo-neighbour"

// Command is a command to a process. Exactly one of its fields is set.
type Command struct {
	Setup  *Setup              `json:"setup,omitempty"`  // the first command
	Peers  map[string][]string `json:"peers,omitempty"`  // the second command: serve; addresses of replicas by service
	Inject *Injection          `json:"inject,omitempty"` // inject a fault
	Report bool                `json:"report,omitempty"` // report counters
	Apply  *FixedPlan          `json:"apply,omitempty"`  // apply a plan, in a process without a server
}

// Setup configures a process.
type Setup struct {
	Service  string `json:"service"`
	Instance int    `json:"instance"` // among the replicas of the service, from 0
	Dir      string `json:"dir"`      // of databases and logs
	Truth    string `json:"truth"`    // file for the [Truth] about the fault, written by the process that injects it
	OTLP     string `json:"otlp"`     // address for traces over gRPC
	Labels   bool   `json:"labels"`   // label goroutines and threads with their spans, for the kernel agent
	Control  string `json:"control"`  // URL of the server that sends plans; may be empty
	Java     *Java  `json:"java"`     // the program that is the service; nil if it is in Go
}

// Injection selects a fault. The seed determines its location.
type Injection struct {
	Fault Fault  `json:"fault"`
	Seed  uint64 `json:"seed"`
}

// FixedPlan is a plan that does not come from a server.
type FixedPlan struct {
	Plan *protocol.Plan `json:"plan"` // nil: the baseline only
	All  bool           `json:"all"`  // instead, all tracepoints known so far
}

// fullVersion differs from the versions of the plans that a process gets.
const fullVersion = 2

// FullPlan returns a plan that enables the tracepoints of a catalogue for all requests.
func FullPlan(version int64, catalogue []protocol.Tracepoint) *protocol.Plan {
	arm := protocol.Arm{Name: "all", Share: 1, Tracepoints: []protocol.Enabled{}}
	for i := range catalogue {
		arm.Tracepoints = append(arm.Tracepoints, protocol.Enabled{ID: catalogue[i].ID, Rate: 1})
	}
	slices.SortFunc(arm.Tracepoints, func(x, y protocol.Enabled) int { return strings.Compare(x.ID, y.ID) })
	return &protocol.Plan{
		Protocol:     protocol.Version,
		Version:      version,
		LeaseSeconds: protocol.MaxLease,
		Arms:         []protocol.Arm{arm},
	}
}

// Reply is the reply to a command.
type Reply struct {
	Address  string  `json:"address,omitempty"`  // to Setup: the listening address
	Process  int     `json:"process,omitempty"`  // to Setup: ID of the process that serves, if it is a different one
	Resolver string  `json:"resolver,omitempty"` // to Setup: the address of the name server, if it runs in this process
	Injected bool    `json:"injected,omitempty"` // to Inject: the fault is in this process
	Report   *Report `json:"report,omitempty"`
	Error    string  `json:"error,omitempty"` // "": success
}

// Report lists the counters of a process.
type Report struct {
	Tracepoints int    `json:"tracepoints"` // executed functions and calls
	Spans       uint64 `json:"spans"`       // ended spans
	Extra       uint64 `json:"extra"`       // of these, not in the baseline

	CPU time.Duration `json:"cpu_ns"` // used by the process
}

// service is one process of the shop.
type service struct {
	name      string
	instance  int
	dir       string
	truth     string
	endpoints map[string]step // by name of the entry span: "POST /path" or a method of gRPC
	functions []*function
	calls     map[string]*atomic.Bool // by name of a CLIENT span: whether there was such a call
	files     []*os.File
	archives  map[string]*archive // by name of the function
	neighbour func() error        // ends the noisy neighbour; may be nil

	db          *sql.DB
	peers       map[string][]string
	client      *http.Client
	connections map[string]*grpc.ClientConn // by address
	provider    trace.TracerProvider
	propagator  propagation.TextMapPropagator
	telemetry   *telemetry

	fault atomic.Pointer[placedFault]
	large atomic.Pointer[string] // text of replies with pictures; nil until it is needed
}

// Run runs a process of the shop until in or ctx ends.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands := make(chan Command)
	go func() { // ends with the input, or with the process
		defer close(commands)
		lines := json.NewDecoder(bufio.NewReader(in))
		for {
			var c Command
			if lines.Decode(&c) != nil {
				cancel()
				return
			}
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	first, ok := <-commands
	if !ok || first.Setup == nil {
		return errors.New("this command is internal to sibylbench demo")
	}
	if first.Setup.Java != nil {
		return runJava(ctx, first.Setup, commands, json.NewEncoder(out))
	}
	s := &service{
		name:     first.Setup.Service,
		instance: first.Setup.Instance,
		dir:      first.Setup.Dir,
		truth:    first.Setup.Truth,
		calls:    make(map[string]*atomic.Bool),
		archives: make(map[string]*archive),
	}
	err := s.run(ctx, first.Setup, commands, json.NewEncoder(out))
	return errors.Join(err, s.close(context.WithoutCancel(ctx)))
}

func (s *service) run(ctx context.Context, setup *Setup, commands <-chan Command, replies *json.Encoder) error {
	if err := s.startTracing(ctx, setup); err != nil {
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
		options := []tracepoint.Option{
			tracepoint.WithEndpoint(setup.Control),
			tracepoint.WithResource(s.telemetry.resource...),
		}
		if setup.Labels {
			options = append(options, tracepoint.WithGoroutineLabels())
		}
		agent, err := tracepoint.Connect(ctx, options...)
		if err != nil {
			return err
		}
		defer agent.Close()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	reply := Reply{Address: listener.Addr().String()}
	if s.name == Outside {
		names, err := listenDNS(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		defer func() { _ = names.Close() }() // this ends the name server
		go s.serveDNS(names)
		reply.Resolver = names.LocalAddr().String()
	}
	if err := replies.Encode(reply); err != nil {
		return errors.Join(fmt.Errorf("reply: %w", err), listener.Close())
	}
	second, ok := <-commands
	if !ok {
		return listener.Close()
	}
	s.peers = second.Peers
	if err := s.connect(); err != nil {
		return errors.Join(err, listener.Close())
	}
	stop := s.serve(listener)
	defer stop()
	if err := replies.Encode(Reply{}); err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return execute(ctx, commands, replies, s.reply)
}

// serve serves requests until stop is called.
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

// execute replies to commands until their channel is closed or ctx ends.
func execute(
	ctx context.Context, commands <-chan Command, replies *json.Encoder, reply func(context.Context, Command) Reply,
) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, ok := <-commands:
			if !ok {
				return nil
			}
			if err := replies.Encode(reply(ctx, c)); err != nil {
				return fmt.Errorf("reply: %w", err)
			}
		}
	}
}

// reply executes a command.
func (s *service) reply(ctx context.Context, c Command) Reply {
	switch {
	case c.Inject != nil:
		injected, err := s.inject(ctx, c.Inject)
		if err != nil {
			return Reply{Error: err.Error()}
		}
		return Reply{Injected: injected}
	case c.Apply != nil:
		plan := c.Apply.Plan
		if c.Apply.All {
			plan = FullPlan(fullVersion, tracepoint.Default.Catalogue())
		}
		if err := tracepoint.Default.Apply(plan); err != nil {
			return Reply{Error: err.Error()}
		}
		return Reply{}
	case c.Report:
		return Reply{Report: s.report()}
	}
	return Reply{Error: "unknown command"}
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
	for _, called := range s.calls {
		if called.Load() {
			r.Tracepoints++
		}
	}
	return r
}

// closeTimeout bounds the export of the last spans when a process exits.
const closeTimeout = 2 * time.Second

func (s *service) close(ctx context.Context) error {
	var errs []error
	if s.neighbour != nil {
		errs = append(errs, s.neighbour())
	}
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
		_ = s.telemetry.provider.Shutdown(ctx) // the server may have exited
	}
	return errors.Join(errs...)
}
