package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The parts with a share leave ownBytes of the memory to the process, even if each is as large as it may be. The sum
// adds up limits, not shares, so that it includes whatever ignores a share.
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
			{"names of decoders", int64(intake.DecoderNames * intake.Decoders), decoderNameBytes},
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
		if sum > memory-ownBytes {
			t.Errorf("memory %d MiB: the parts may take %d MiB", memory/mib, sum/mib)
		}
	}
}

// However many requests a tenant gets, it leaves a processor to the others.
func TestTenantsLeaveAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	c := Config{Memory: 256 * mib}
	if alone, beside := c.IntakeLimits().Decoders, c.Part(0.5).IntakeLimits().Decoders; alone != 4 || beside != 3 {
		t.Errorf("%d decoders alone, %d beside others; want 4 and 3", alone, beside)
	}
}

// inUse returns the number of reachable heap bytes.
func inUse() int {
	runtime.GC()
	runtime.GC() // empties pools
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

// The entries of the dictionary take at most nameBytes, and decoderNameBytes without the record of their use.
func TestNameBytes(t *testing.T) {
	const n = 1 << 17 // of the sizes of maps, the worst
	for _, renewed := range []bool{false, true} {
		before := inUse()
		table := &trace.Table{}
		fill := func() {
			for i := range n {
				op := table.Op(0, table.Symbol(fmt.Sprintf("%064d", i)), trace.Internal)
				table.Symbol(fmt.Sprintf("%064d", n+i))
				table.AddEdge(trace.EdgeOf(table.Child(0, op), op, 0), trace.EdgeInfo{Before: op})
			}
		}
		fill()
		most := decoderNameBytes
		if renewed {
			most = nameBytes
			for range 2 {
				table.Renew()
				fill()
			}
		}
		if got := (inUse() - before) / n; got > most {
			t.Errorf("a name takes %d bytes, more than %d", got, most)
		} else {
			t.Logf("%d bytes", got)
		}
		runtime.KeepAlive(table)
	}
}

// A tracepoint takes at most tracepointBytes: its entry in package control, with texts of the greatest average length,
// the reports of agents about it, and its entry in the engine. The names of the dictionary are counted elsewhere.
func TestTracepointBytes(t *testing.T) {
	const size, texts, outcomes = 5 * protocol.PageSize, 160, 2
	all := make([]protocol.Tracepoint, size)
	for i := range all {
		class := strings.Map(func(digit rune) rune { return digit - '0' + 'a' }, fmt.Sprintf("%06d", i))
		method := class + ".order"
		id := "shop/com.acme." + method
		all[i] = protocol.Tracepoint{
			ID:        id + strings.Repeat("x", texts-len(id)),
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   "shop",
			Operation: method,
			SpanKind:  protocol.Internal,
			Code:      "com.acme." + method,
		}
	}
	catalogue := protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: size}
	register := func(p *control.Plane, id string, page int) {
		from, to := catalogue.Page(page)
		r := protocol.Registration{
			Session:   "1",
			Catalogue: catalogue,
			Page:      &protocol.Page{Number: page, Tracepoints: all[from:to]},
		}
		sent, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var received protocol.Registration // with texts of its own
		if err := json.Unmarshal(sent, &received); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Register(control.Caller{ID: id, Session: "1"}, &received); err != nil {
			t.Fatal(err)
		}
	}
	table := &trace.Table{}
	core := engine.NewCore(table, engine.DefaultOptions())
	announced := make([]search.Announced, size)
	for i := range all {
		announced[i] = search.Announced{ID: all[i].ID, Name: all[i].Operation, Span: trace.Internal}
		table.Op(table.Symbol("shop"), table.Symbol(announced[i].Name), trace.Internal)
		table.Symbol(announced[i].ID)
	}

	start := inUse()
	plane := control.New(nil, control.Options{Log: slog.New(slog.DiscardHandler)})
	plane.Begin(nil)
	for page := range catalogue.Pages() {
		register(plane, "0", page)
	}
	held := inUse()
	for agent := range outcomes {
		id := fmt.Sprint(agent)
		register(plane, id, 0)
		list := make([]protocol.Outcome, size)
		for i := range list {
			list[i] = protocol.Outcome{ID: all[i].ID, State: protocol.Applied}
		}
		if err := plane.Report(control.Caller{ID: id, Session: "1"}, &protocol.Status{Tracepoints: list}); err != nil {
			t.Fatal(err)
		}
	}
	reported := inUse()
	core.Apply(&engine.Change{Feedback: &search.Feedback{
		At: 1, Catalogues: []search.Catalogue{{Service: "shop", Tracepoints: announced}},
	}})
	end := inUse()
	if got := (end - start) / size; got > tracepointBytes {
		t.Errorf("a tracepoint takes %d bytes, more than %d", got, tracepointBytes)
	}
	t.Logf("%d bytes in a catalogue, %d in each report, %d in the engine",
		(held-start)/size, (reported-held)/size/outcomes, (end-reported)/size)
	runtime.KeepAlive(plane)
	runtime.KeepAlive(core)
	runtime.KeepAlive(all)
	runtime.KeepAlive(announced)
}
