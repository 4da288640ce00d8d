package search

import (
	"math"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestWaitSentence(t *testing.T) {
	var table trace.Table
	op := func(service, name string) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), trace.Internal)
	}
	host := func(key, value string, effect, p float64) *detect.Problem {
		return &detect.Problem{Explanations: []detect.Explanation{
			{Variable: "tenant", Value: "x", Effect: 0.9, PValue: 0.001},
			{Variable: key, Value: value, Effect: effect, PValue: p},
		}}
	}
	none := &detect.Problem{}
	sync, queue := op("orders", "wait sync"), op("orders", "wait runqueue")
	const disk = "82 % of it is waiting for the disk (fsync) in orders"
	for _, c := range []struct {
		share   float64
		op      trace.Op
		within  trace.Op
		problem *detect.Problem
		want    string
	}{
		{0.82, sync, 0, host("host.name", "b", 0.4, 0.01), disk + ", on host b"},
		{0.82, sync, 0, host("host.name", "b", 0.1, 0.01), disk},
		{0.82, sync, 0, host("host.name", "b", 0.4, 0.2), disk},
		{0.82, sync, 0, host("host.name", "", 0.4, 0.01), disk},
		{0.82, sync, op("orders", "audit.append"), none, disk + " audit.append"},
		{1, queue, 0, host("k8s.pod.name", "o-1", 0.4, 0.01), "all of it is waiting for a CPU in orders, on pod o-1"},
		{0.5, op("orders", "kernel.disk:sda"), 0, none, "50 % of it is waiting in the kernel in orders"},
		{0.5, op("orders", "wait for Godot"), 0, none, "50 % of it is waiting in the kernel in orders"},
	} {
		if got := waitSentence(&Suspect{Share: c.share, Op: c.op}, c.within, c.problem, &table); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := waitSentence(&Suspect{Share: 0.5, Op: 1}, 0, none, nil); got != "50 % of it is waiting in the kernel" {
		t.Error(got)
	}
}

// Waits that sentences don't distinguish count together, and a place computes only if all classes are known to be
// absent.
func TestWaitsOfScope(t *testing.T) {
	var table trace.Table
	wait := func(class string, share float64, known bool) location {
		return location{
			op:    table.Op(table.Symbol("orders"), table.Symbol("wait "+class), trace.Internal),
			tp:    table.Symbol("orders/kernel/" + class),
			layer: cct.Kernel,
			known: known,
			share: share,
			own:   share,
		}
	}
	scope := func(waits ...location) *operationScope {
		return &operationScope{score: 0.5, locations: append([]location{{known: true, share: 1}}, waits...)}
	}
	o := scope(
		wait("sync", 0.45, true), wait("runqueue", 0.25, true), wait("preempted", 0.3, true), wait("dns", 0.9, false),
	)
	w, all := o.waits(&table)
	name := table.OpName(w.Op)
	if math.Abs(all-0.5) > 1e-9 || name != "wait preempted" || math.Abs(w.Share-0.275) > 1e-9 {
		t.Errorf("%s with %g, want both classes of waits for a CPU", name, w.Share)
	}
	if w, all := scope(wait("sync", 0, true)).waits(&table); w != (Suspect{}) || all != 0 {
		t.Errorf("%+v and %g, want none", w, all)
	}
	for _, c := range []struct {
		sync, queue, dns float64
		want             bool
	}{
		{0.5, 0, 0, true}, {0.49, 0, 0, false}, {0.45, 0.4, 0, true}, {0.45, 0.3, 0, false}, {0.3, 0.3, 0.3, false},
	} {
		o := scope(wait("sync", c.sync, true), wait("runqueue", c.queue, true), wait("dns", c.dns, true))
		if _, got := o.explainingWaits(&table); got != c.want {
			t.Errorf("%+v: explains %t", c, got)
		}
	}
	entry := table.Op(table.Symbol("orders"), table.Symbol("POST /place"), trace.Server)
	f := func(name string) trace.Op {
		return table.Op(table.Symbol("orders"), table.Symbol(name), trace.Internal)
	}
	o.locations = append(o.locations,
		location{op: f("place.record"), known: true, share: 0.9},
		location{op: f("audit.append"), known: true, share: 0.5},
		location{op: f("audit.format"), known: true, share: 0.1})
	w = Suspect{Op: f("wait sync"), Share: 0.25}
	if got := table.OpName(o.functionOf(&w, &table)); got != "audit.append" {
		t.Errorf("within %q, want the innermost function that carries as much", got)
	}
	w.Context = table.Child(table.Child(table.Child(0, entry), f("place.insert")), w.Op)
	if got := table.OpName(o.functionOf(&w, &table)); got != "place.insert" {
		t.Errorf("within %q, want that in which it was seen", got)
	}
	w.Context = table.Child(table.Child(0, entry), w.Op)
	if w.Share = 0.9; o.functionOf(&w, &table) != 0 {
		t.Error("a function that carries less than the waits")
	}
	quiet := []location{
		wait("sync", 0.02, true), wait("runqueue", 0.05, true), wait("preempted", 0, true), wait("file", -0.01, true),
		wait("dns", 0, true), wait("net", 0, true), wait("futex", 0.01, true), wait("sleep", 0, true),
	}
	silent := slices.Clone(quiet)
	quiet[0].executed = true
	for _, c := range []struct {
		name string
		list []location
		want bool
	}{
		{"none was seen", silent, false},
		{"all known", quiet, true},
		{"too few classes", quiet[:5], false},
		{"one is unknown", append(slices.Clone(quiet), wait("fault", 0, false)), false},
		{"one carries much", append(slices.Clone(quiet), wait("fault", 0.3, true)), false},
	} {
		if got := scope(c.list...).neverWaits(); got != c.want {
			t.Errorf("%s: never waits %t", c.name, got)
		}
	}
}

// A function that computes for longer on a busy machine is also preempted for longer. If only the waits for a CPU
// grow, they are the cause.
func TestComputingWaitsForTurns(t *testing.T) {
	var table trace.Table
	wait := func(class string, share float64) location {
		op := table.Op(table.Symbol("search"), table.Symbol("wait "+class), trace.Internal)
		return location{parent: 1, op: op, layer: cct.Kernel, known: true, share: share}
	}
	for _, c := range []struct {
		preempted, queue, file float64
		own, waits             float64
	}{
		{0.3, 0.2, 0.1, 0.8, 0.1}, // the function computes for 0.3
		{0.4, 0.2, 0, 0.9, 0},
		{0.5, 0.3, 0, 0.1, 0.8},
		{0, 0, 0.6, 0.3, 0.6},
	} {
		o := &operationScope{score: 1, locations: []location{
			{parent: -1, known: true, share: 1},
			{known: true, share: 0.9},
			wait("preempted", c.preempted), wait("runqueue", c.queue), wait("file", c.file),
		}}
		o.divide()
		o.creditComputing(&table)
		if w, _ := o.waits(&table); math.Abs(o.locations[1].own-c.own) > 1e-9 || math.Abs(w.Share-c.waits) > 1e-9 {
			t.Errorf("%+v: the function has %.2f, the largest waits %.2f", c, o.locations[1].own, w.Share)
		}
	}
}

// The common classes of waits are tried first. Other tracepoints keep their weight.
func TestCommonWaitsFirst(t *testing.T) {
	var table trace.Table
	at := func(layer cct.Layer, name string) location {
		op := table.Op(table.Symbol("search"), table.Symbol(name), trace.Internal)
		return location{op: op, layer: layer, priorWeight: 2}
	}
	o := &operationScope{locations: []location{
		at(cct.App, "rank"), at(cct.Kernel, "wait tty"), at(cct.Kernel, "wait futex"), at(cct.Kernel, "tcp_retransmit"),
	}}
	o.preferCommonWaits(&table)
	for i, want := range []float64{2, 0.5, 2, 2} {
		if got := o.locations[i].priorWeight; got != want {
			t.Errorf("location %d: weight %g, want %g", i, got, want)
		}
	}
}
