package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/kv"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// What the large state is made of. A request of an operation takes one of two ways, each of which is a group.
const (
	largeEpochs     = 17
	largeFaultsAt   = 7 // epochs
	largeMendedAt   = 9 // half of what had become slow is well again
	largeServices   = 40
	largeOperations = 3600
	largePerEpoch   = 9  // requests of each way of each operation
	largeJobs       = 20 // of the operation whose calling-context tree is large, each with so many steps of so many calls
	largeSteps      = 25
	largeCalls      = 40
	largeCatalogue  = 100 // tracepoints
)

// large writes the state of a service under which very much goes wrong until end: no traces, only what statistics and decisions say.
func large(dir string, end trace.Nanos) (err error) {
	disk, err := kv.NewDisk(dir)
	if err != nil {
		return err
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o := engine.DefaultOptions()
	o.Learning, o.Watch.Chronic = learning*epoch, analysis.DefaultThresholds()
	o.Budget = search.Budget{Tracepoints: 20}
	l := &landscape{table: &trace.Table{}, random: rand.New(rand.NewPCG(5, 8))}
	core := engine.NewCore(l.table, o)
	now := end.Add(-largeEpochs * epoch)
	core.Announce(now, l.catalogue())
	for i := range largeEpochs {
		l.play(core, now, i)
		now = now.Add(epoch)
		decisions := core.Epoch(now)
		if len(decisions) == 0 {
			continue
		}
		if err := s.PutDecisions(now, decisions); err != nil {
			return err
		}
	}
	return s.Save(&store.Checkpoint{At: now, State: core.AppendState(nil)}, 0)
}

// landscape makes requests of very many operations.
type landscape struct {
	table  *trace.Table
	random *rand.Rand
	t      trace.Trace // that is being made
	traces uint64
}

// play plays one epoch. Two in three operations vary far more than they should, one in ten becomes slow.
func (l *landscape) play(core *engine.Core, from trace.Nanos, epoch int) {
	for op := range largeOperations {
		spread := [...]float64{0.8, 0.05, 0.5}[op%3]
		slow := 1.
		if epoch >= largeFaultsAt && (op%20 == 1 || op%20 == 11 && epoch < largeMendedAt) {
			slow = 3
		}
		for way := range 2 {
			for range largePerEpoch {
				l.request(op, way, from, slow, spread)
				core.Ingest(&l.t)
			}
		}
	}
	l.batch(from)
	core.Ingest(&l.t)
}

// begin begins another trace with a request to a service.
func (l *landscape) begin(service, name string, at trace.Nanos, took time.Duration) {
	l.traces++
	l.t.Reset()
	for i := range 8 {
		l.t.ID[i], l.t.ID[8+i] = byte(l.traces>>(8*i)), byte(l.random.Uint32())
	}
	l.span(0, service, name, trace.Server, at, took)
}

// span adds a span and returns its number.
func (l *landscape) span(parent trace.SpanID, service, name string, kind trace.Kind, at trace.Nanos, took time.Duration) trace.SpanID {
	id := trace.SpanID(len(l.t.Spans) + 1)
	of := l.table.Symbol(service)
	l.t.Spans = append(l.t.Spans, trace.Span{ID: id, Parent: parent, Start: at, End: at.Add(took), Op: l.table.Op(of, l.table.Symbol(name), kind), Service: of, Kind: kind})
	return id
}

// request makes a request that asks a database, or a cache. What varies, and becomes slow, is the call.
func (l *landscape) request(op, way int, from trace.Nanos, slow, spread float64) {
	service := fmt.Sprintf("service-%02d", op%largeServices)
	call := time.Duration(float64(2+op%17) * slow * math.Exp(spread*l.random.NormFloat64()) * float64(time.Millisecond))
	own := time.Duration(1+l.random.IntN(200)) * time.Microsecond
	at := from.Add(time.Duration(l.random.Int64N(int64(epoch - time.Second))))
	l.begin(service, fmt.Sprintf("GET /%s/%s/%d", nouns[op%len(nouns)], nouns[op/len(nouns)%len(nouns)], op/1000+1), at, own+call)
	name := [...]string{"SELECT ", "GET "}[way] + nouns[op%len(nouns)]
	l.span(1, service, name, trace.Client, at.Add(own/2), call)
}

var nouns = [...]string{
	"orders", "carts", "payments", "customers", "invoices", "shipments", "returns", "stock", "prices", "offers", "coupons", "reviews", "images", "pages", "searches",
	"sessions", "accounts", "addresses", "tokens", "devices", "alerts", "messages", "threads", "files", "folders", "reports", "exports", "imports", "jobs", "queues",
	"routes", "tariffs",
}

// batch makes a request whose calling-context tree is large.
func (l *landscape) batch(from trace.Nanos) {
	step := largeCalls * 10 * time.Microsecond
	job := largeSteps * step
	l.begin(batchService, batchName, from, largeJobs*job)
	for j := range largeJobs {
		at := from.Add(time.Duration(j) * job)
		parent := l.span(1, batchService, fmt.Sprintf("job %s", nouns[j]), trace.Internal, at, job)
		for s := range largeSteps {
			at := at.Add(time.Duration(s) * step)
			within := l.span(parent, batchService, fmt.Sprintf("step %s", nouns[s]), trace.Internal, at, step)
			for c := range largeCalls {
				l.span(within, batchService, fmt.Sprintf("call %d of %s", c, nouns[(s+c)%len(nouns)]), trace.Internal, at.Add(time.Duration(c)*10*time.Microsecond), 10*time.Microsecond)
			}
		}
	}
}

const batchService, batchName = "nightly", "POST /batch"

// catalogue returns what can be switched on: functions of the operations.
func (l *landscape) catalogue() []cct.Tracepoint {
	all := make([]cct.Tracepoint, largeCatalogue)
	for i := range all {
		service := l.table.Symbol(batchService)
		name := l.table.Symbol(fmt.Sprintf("function %d", i))
		all[i] = cct.Tracepoint{
			ID: name, Op: l.table.Op(service, name, trace.Internal), Owner: l.table.Op(service, l.table.Symbol("job "+nouns[i%largeJobs]), trace.Internal),
			Cost: 2 * time.Microsecond, Bytes: 300,
		}
	}
	return all
}
