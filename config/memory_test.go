package config

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The parts with a share take less than the memory together, even if each is as large as it may be. The sum adds up
// limits, not shares, so that it includes whatever ignores a share.
func TestSharesAddUp(t *testing.T) {
	for _, memory := range []int64{64 * mib, 128 * mib, 256 * mib, 512 * mib, 1024 * mib, 2048 * mib, 16 << 30} {
		c := Config{Memory: memory}
		o, intake, open := c.Engine(), c.IntakeLimits(), c.OpenTraces()
		sum := int64(0)
		for _, part := range []struct {
			name         string
			count, bytes int64
		}{
			{"groups", int64(o.Groups.Groups), groupBytes},
			{"open traces", open.Memory, 1},
			{"closed traces", open.Memory / 4, 1},
			{"names", int64(intake.Names), nameBytes},
			{"names of decoders", int64(intake.DecoderNames * runtime.GOMAXPROCS(0)), nameBytes},
			{"requests in flight", intake.InFlight, 1},
			{"requests for the core", intake.InFlight, 1},
			{"learning, or contexts", max(int64(o.EarlyBytes), int64(o.Contexts)*(contextBytes+nodeBytes)), 1},
			{"charts", int64(intake.Charted), chartedBytes},
			{"tracepoints", int64(o.Tracepoints), tracepointBytes},
			{"sites", min(20_000, int64(o.Sites)), siteBytes},
			{"durations of spans", int64(o.Operations), operationBytes},
			{"whole traces", int64(intake.Whole), 1},
			{"kept requests", int64(o.Kept), keptBytes},
		} {
			if part.count <= 0 {
				t.Errorf("memory %d MiB: no room for %s", memory/mib, part.name)
			}
			sum += part.count * part.bytes
		}
		if sum >= memory {
			t.Errorf("memory %d MiB: the parts may take %d MiB", memory/mib, sum/mib)
		}
	}
}

// inUse returns the number of reachable heap bytes.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A calling context takes at most contextBytes, and a node of a built tree at most nodeBytes.
func TestContextBytes(t *testing.T) {
	const trees, each, depth = 20, 3000, 30
	before := inUse()
	builders := make([]cct.Builder, trees)
	for i := range builders {
		for n := range each / depth {
			o := cct.Observation{Seen: 1, On: []trace.Symbol{trace.Symbol(n%8 + 1)}}
			var above trace.Context
			for k := range depth {
				op := trace.Op(n*depth + k + 1)
				x := cct.ContextCount{Context: above.Child(op), Parent: above, Op: op, Count: 1}
				o.Contexts, above = append(o.Contexts, x), x.Context
			}
			builders[i].Observe(o)
		}
	}
	with := inUse()
	built := make([]*cct.Tree, trees)
	for i := range builders {
		built[i] = builders[i].Build(nil, nil)
	}
	after := inUse()
	if n := len(built[0].Nodes); n != each {
		t.Fatalf("%d nodes, want %d", n, each)
	}
	if got := (with - before) / (trees * each); got > contextBytes {
		t.Errorf("a context takes %d bytes, more than %d", got, contextBytes)
	}
	if got := (after - with) / (trees * each); got > nodeBytes {
		t.Errorf("a node takes %d bytes, more than %d", got, nodeBytes)
	}
	runtime.KeepAlive(built)
	runtime.KeepAlive(builders)
}

// A tracepoint takes at most tracepointBytes: its entry in package control with texts of the greatest average length,
// the reports of agents about it, and its entry in the engine.
func TestTracepointBytes(t *testing.T) {
	const size, texts, outcomes = 5 * protocol.PageSize, 192, 2
	all := make([]protocol.Tracepoint, size)
	announced := make([]search.Announced, size)
	table := &trace.Table{}
	for i := range all {
		id := fmt.Sprintf("shop/%06d", i)
		name := fmt.Sprintf("step %0*d", texts-len(id)-len("step "), i)
		all[i] = protocol.Tracepoint{
			ID:        id,
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   "shop",
			Operation: name,
			Owner:     "GET /",
		}
		announced[i] = search.Announced{ID: id, Name: name, Owner: "GET /"}
		table.Op(table.Symbol("shop"), table.Symbol(name), trace.Internal)
		table.Symbol(id)
	}
	catalogue := protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: size}
	register := func(p *control.Plane, id string, page int) {
		from, to := catalogue.Page(page)
		_, err := p.Register(control.Caller{ID: id, Session: "1"}, &protocol.Registration{
			Session:   "1",
			Catalogue: catalogue,
			Page:      &protocol.Page{Number: page, Tracepoints: all[from:to]},
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	core := engine.NewCore(table, engine.DefaultOptions())
	before := inUse()
	plane := control.New(nil, control.Options{Log: slog.New(slog.DiscardHandler)})
	plane.Begin(nil)
	for page := range catalogue.Pages() {
		register(plane, "0", page)
	}
	for agent := range outcomes {
		id := fmt.Sprint(agent)
		register(plane, id, 0)
		list := make([]protocol.Outcome, size)
		for i := range list {
			list[i] = protocol.Outcome{ID: all[i].ID, State: protocol.State([]byte(protocol.Applied))}
		}
		if err := plane.Report(control.Caller{ID: id, Session: "1"}, &protocol.Status{Tracepoints: list}); err != nil {
			t.Fatal(err)
		}
	}
	core.Apply(&engine.Change{Feedback: &search.Feedback{
		At: 1, Catalogues: []search.Catalogue{{Service: "shop", Tracepoints: announced}},
	}})
	got := (inUse() - before) / size
	if got += texts; got > tracepointBytes { // the test has the texts, too
		t.Errorf("a tracepoint takes %d bytes, more than %d", got, tracepointBytes)
	}
	t.Logf("%d bytes", got)
	runtime.KeepAlive(plane)
	runtime.KeepAlive(core)
	runtime.KeepAlive(all)
	runtime.KeepAlive(announced)
}
