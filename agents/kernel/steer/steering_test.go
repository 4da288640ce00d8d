package steer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// planOf returns a plan that enables ids for all requests.
func planOf(version int64, ids ...string) *protocol.Plan {
	slices.Sort(ids)
	p := &protocol.Plan{Protocol: protocol.Version, Version: version, LeaseSeconds: 90, Arms: []protocol.Arm{
		{Name: "a", Share: 1, Tracepoints: []protocol.Enabled{}},
	}}
	for _, id := range ids {
		p.Arms[0].Tracepoints = append(p.Arms[0].Tracepoints, protocol.Enabled{ID: id, Rate: 1})
	}
	p.Hash = protocol.HashPlan(p)
	return p
}

// machine is a folder like /proc, with a steering for its processes.
type machine struct {
	*steering
	t       *testing.T
	applied kernel.Spec
	fails   error
	lacks   error // why the spans of threads are unknown
}

func newMachine(t *testing.T) *machine {
	m, proc := &machine{t: t}, t.TempDir()
	changes := uint64(0)
	m.steering = &steering{
		changes:  func() uint64 { changes++; return changes },
		apply:    func(s kernel.Spec) error { m.applied = s; return m.fails },
		changed:  make(chan struct{}, 1),
		due:      make(chan struct{}, 1),
		context:  func(uint32) (join.Context, error) { return join.Context{Kind: join.GoLabels}, m.lacks },
		program:  func(uint32) string { return "/bin/server" },
		enabled:  index(nil),
		governor: governor{limit: 0.01},
		usage:    make(map[string]*usage),
		stacks:   true,
		processes: processes{
			proc: proc, own: 1, everything: true, serviceOf: join.NewJoiner(proc, "", "b").Service,
			all: make(map[uint32]*join.Service), services: make(map[string]int),
		},
	}
	return m
}

// start adds a process.
func (m *machine) start(pid int, began string, environment ...string) {
	m.t.Helper()
	folder := filepath.Join(m.processes.proc, strconv.Itoa(pid))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		m.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"environ": strings.Join(environment, "\x00"), "maps": "", "cgroup": "0::/\n",
		"stat": fmt.Sprintf("%d (a) b) S %s%s 0", pid, strings.Repeat("0 ", 18), began),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) end(pid int) {
	_ = os.RemoveAll(filepath.Join(m.processes.proc, strconv.Itoa(pid)))
}

func (m *machine) look() {
	m.t.Helper()
	if err := m.scan(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) expect(when string, want map[uint32]kernel.Target) {
	m.t.Helper()
	if !maps.Equal(m.applied.Targets, want) {
		m.t.Errorf("%s: targets %v, want %v", when, m.applied.Targets, want)
	}
}

// expectStates checks the states of the outcomes.
func (m *machine) expectStates(when string, want map[string]protocol.State) {
	m.t.Helper()
	got := make(map[string]protocol.State)
	for _, o := range m.Outcomes() {
		if got[o.ID] = o.State; (o.Reason == "") != (o.State == protocol.Applied && !o.Incomplete) {
			m.t.Errorf("%s: %+v", when, o)
		}
	}
	status := protocol.Status{Protocol: protocol.Version, Session: "1", Tracepoints: m.Outcomes()}
	if err := status.Validate(); err != nil || !maps.Equal(got, want) {
		m.t.Errorf("%s: %v, %v, want %v", when, got, err, want)
	}
}

func on(stacks bool, classes ...waits.Class) kernel.Target {
	var s waits.Set
	for _, c := range classes {
		s = s.With(c)
	}
	return kernel.Target{
		Classes:   s,
		Events:    s,
		InSpans:   true,
		MaxEvents: maxEvents,
		Stacks:    stacks,
		Context:   join.Context{Kind: join.GoLabels},
	}
}

func TestSteering(t *testing.T) {
	m := newMachine(t)
	m.start(1, "1", "OTEL_SERVICE_NAME=agent") // itself
	m.start(10, "5", "OTEL_SERVICE_NAME=orders")
	m.start(11, "5", "OTEL_SERVICE_NAME=cart", "OTEL_RESOURCE_ATTRIBUTES=service.version=2")
	m.start(12, "5", "PATH=/bin")
	m.start(13, "5", "OTEL_SERVICE_NAME="+strings.Repeat("x", 250))
	m.look()
	m.expect("without a plan", map[uint32]kernel.Target{})
	if list := m.Catalogue(); len(list) != 2*(waits.NumClasses-1) || list[0].ID != "cart/kernel/child" ||
		len(m.changed) != 1 {
		t.Errorf("%d tracepoints, the first is %+v", len(list), list[0])
	}
	r := protocol.Registration{
		Protocol:  protocol.Version,
		Session:   "1",
		Resource:  map[string]string{"service.name": "agent"},
		Catalogue: protocol.Catalogue{Hash: protocol.HashCatalogue(m.Catalogue()), Size: len(m.Catalogue())},
		Page:      &protocol.Page{Tracepoints: m.Catalogue()},
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	m.Apply(planOf(1, "orders/kernel/sync", "orders/kernel/file", "cart/kernel/oncpu", "pay/kernel/file",
		"orders/price"))
	m.expect("orders is in the plan", map[uint32]kernel.Target{10: on(true, waits.Sync, waits.File)})
	m.expectStates("orders is in the plan", map[string]protocol.State{
		"orders/kernel/sync": protocol.Applied, "orders/kernel/file": protocol.Applied,
		"pay/kernel/file":   protocol.Unsupported,
		"cart/kernel/oncpu": protocol.Unsupported, "orders/price": protocol.Unsupported,
	})
	m.start(14, "6", "OTEL_SERVICE_NAME=orders")
	m.look()
	m.expect("a process has started",
		map[uint32]kernel.Target{10: on(true, waits.Sync, waits.File), 14: on(true, waits.Sync, waits.File)})
	m.end(10)
	m.look()
	m.expect("a process has ended", map[uint32]kernel.Target{14: on(true, waits.Sync, waits.File)})
	m.start(14, "7", "OTEL_SERVICE_NAME=cart")
	m.look()
	m.expect("the ID belongs to a process of another service", map[uint32]kernel.Target{})
	m.expectStates("no process of the service is left", map[string]protocol.State{ // the service may be restarting
		"orders/kernel/sync": protocol.Applied, "orders/kernel/file": protocol.Applied,
		"pay/kernel/file":   protocol.Unsupported,
		"cart/kernel/oncpu": protocol.Unsupported, "orders/price": protocol.Unsupported,
	})
	m.Apply(planOf(2, "cart/kernel/runqueue"))
	want := on(true, waits.RunQueue)
	m.expect("run queues of cart", map[uint32]kernel.Target{11: want, 14: want})
	x, _, ok := m.target(11)
	cart := join.NewService(map[string]string{
		"service.name": "cart", "service.version": "2", "host.name": "b", "process.pid": "11",
	})
	if !ok || !reflect.DeepEqual(x.service, cart) {
		t.Errorf("%+v", x.service)
	}
	m.lacks = errors.New("it is no Go program")
	m.look()
	m.expectStates("spans unknown", map[string]protocol.State{"cart/kernel/runqueue": protocol.Failed})
	m.lacks = nil
	m.fails = errors.New("no memory")
	m.look()
	m.expectStates("the probes fail", map[string]protocol.State{"cart/kernel/runqueue": protocol.Failed})
	m.fails = nil
	m.Apply(nil)
	m.expect("the lease has expired", map[uint32]kernel.Target{})
	m.expectStates("the lease has expired", map[string]protocol.State{})
}

// A service without processes is announced for ten minutes. An SDK that publishes its resource late is found. A
// program without a service name belongs to the given service.
func TestServices(t *testing.T) {
	m := newMachine(t)
	m.start(10, "5", "PATH=/bin")
	m.start(11, "5", "OTEL_SERVICE_NAME=cart")
	m.look()
	m.end(11)
	m.start(10, "5", "OTEL_SERVICE_NAME=late")
	for range 128 {
		m.look()
	}
	if got := m.serviceNames(); !slices.Equal(got, []string{"cart", "late"}) {
		t.Errorf("services %q", got)
	}
	for range forgetScans {
		m.look()
	}
	if got := m.serviceNames(); !slices.Equal(got, []string{"late"}) {
		t.Errorf("services %q", got)
	}
	m = newMachine(t)
	m.processes.serviceOf = join.NewJoiner(m.processes.proc, "given", "b").Service
	m.start(10, "5", "PATH=/bin")
	m.look()
	if got := m.serviceNames(); !slices.Equal(got, []string{"given"}) {
		t.Errorf("services %q", got)
	}
}

// The level changes after repeated judgements: it goes down one by one, and returns more and more slowly.
func TestLevels(t *testing.T) {
	m := newMachine(t)
	m.start(10, "5", "OTEL_SERVICE_NAME=orders")
	m.look()
	m.Apply(planOf(1, "orders/kernel/sync"))
	applied := map[string]protocol.State{"orders/kernel/sync": protocol.Applied}
	failed := map[string]protocol.State{"orders/kernel/sync": protocol.Failed}
	sums := kernel.Target{Classes: waits.Set(0).With(waits.Sync), Context: join.Context{Kind: join.GoLabels}}
	none := map[uint32]kernel.Target{}
	for _, c := range []struct {
		level   level
		targets map[uint32]kernel.Target
		states  map[string]protocol.State
	}{
		{noStacks, map[uint32]kernel.Target{10: on(false, waits.Sync)}, applied},
		{noEvents, map[uint32]kernel.Target{10: sums}, failed},
		{sampled, none, failed},
		{off, none, failed},
	} {
		n := 1
		for ; !m.judge(0.02); n++ {
		}
		if want := map[bool]int{true: burst, false: patience}[c.level == noStacks]; n != want {
			t.Errorf("%s: after %d judgements, want %d", c.level, n, want)
		}
		m.expect(c.level.String(), c.targets)
		m.expectStates(c.level.String(), c.states)
	}
	for range 2 * patience {
		if m.judge(0.02) {
			t.Error("there is nothing below off")
		}
	}
	calm := func() (n int) {
		for n = 1; !m.judge(0.001); n++ {
		}
		return n
	}
	first := calm()
	m.sample(true)
	m.expect("the sampled part of the time", map[uint32]kernel.Target{10: sums})
	m.sample(false)
	m.expect("the rest of the time", none)
	m.judge(0.02)
	m.judge(0.02)
	if second := calm(); second != 2*first {
		t.Errorf("back after %d judgements, then %d", first, second)
	}
	for m.level() != full {
		calm()
	}
	m.expect("full again", map[uint32]kernel.Target{10: on(true, waits.Sync)})
	if m.judge(0.009); m.level() != full {
		t.Error("within the limit")
	}
	m.governor = governor{}
	for range 10 {
		if m.judge(1) {
			t.Fatal("there is no limit")
		}
	}
}

// Hits are the spans sent. The time of the probes is divided by the number of intervals and single waits.
func TestDistribute(t *testing.T) {
	m := newMachine(t)
	m.start(10, "5", "OTEL_SERVICE_NAME=orders")
	m.start(11, "5", "OTEL_SERVICE_NAME=cart")
	m.look()
	m.Apply(planOf(1, "orders/kernel/sync", "cart/kernel/file", "cart/kernel/net"))
	row := func(pid uint32, c waits.Class, n uint64) waits.Row {
		return waits.Row{Key: waits.Key{TGID: pid, TID: pid, Class: c}, Count: n}
	}
	for i := range 10 {
		m.record("orders", waitOf(waits.Sync, time.Millisecond), i < 4)
		if i < 5 {
			m.record("cart", waitOf(waits.File, time.Millisecond), false)
		}
	}
	m.distribute([]waits.Row{
		row(10, waits.Sync, 12), row(10, waits.Sync, 8), row(11, waits.File, 5), row(11, waits.Sync, 99),
		row(12, waits.File, 99),
	}, 40_000)
	m.distribute(nil, 5000)
	want := map[string]protocol.Outcome{
		"orders/kernel/sync": {Hits: 4, Nanos: 3000, Bytes: hitBytes},
		"cart/kernel/file":   {Nanos: 2000},
		"cart/kernel/net":    {},
	}
	for _, o := range m.Outcomes() {
		x := want[o.ID]
		if x.ID, x.State = o.ID, protocol.Applied; o != x {
			t.Errorf("%+v, want %+v", o, x)
		}
	}
	m.Apply(planOf(2))
	if all := m.Outcomes(); len(all) != 1 || all[0].ID != "orders/kernel/sync" {
		t.Errorf("%+v: want those of the former plan that were sent", all)
	}
}

// The gate agrees with the arms and the rates of the plan.
func TestGate(t *testing.T) {
	p := planOf(1, "orders/kernel/sync")
	p.Arms = []protocol.Arm{
		{Name: "a", Share: 0.25, Tracepoints: []protocol.Enabled{{ID: "orders/kernel/sync", Rate: 0.5}}},
		{Name: "x", Share: 0.1},
		{Name: "b", Share: 0.25, Tracepoints: []protocol.Enabled{
			{ID: "orders/kernel/file", Rate: 1}, {ID: "orders/kernel/sync", Rate: 1},
		}},
	}
	e := index(p)
	if want := waits.Set(0).With(waits.Sync).With(waits.File); e.classes["orders"] != want {
		t.Errorf("classes %v", e.classes)
	}
	counts := make(map[waits.Class]float64)
	const n = 40_000
	for i := range uint64(n) {
		var id [16]byte
		binary.BigEndian.PutUint64(id[8:], i)
		for c := range waits.Class(waits.NumClasses) {
			if e.gate("orders")(c, id) {
				counts[c] += 1. / n
			}
			if e.gate("cart")(c, id) || index(nil).gate("orders")(c, id) {
				t.Fatal("not in the plan")
			}
		}
	}
	if len(counts) != 2 || math.Abs(counts[waits.Sync]-0.375) > 0.01 || math.Abs(counts[waits.File]-0.25) > 0.01 {
		t.Errorf("%v", counts)
	}
	if e.gate("orders")(waits.Class(99), [16]byte{}) {
		t.Error("no such class")
	}
}

func TestIDs(t *testing.T) {
	for id, want := range map[string]string{
		"orders/kernel/sync": "orders", "a/kernel/b/kernel/file": "a/kernel/b", "orders/kernel/oncpu": "",
		"orders/kernel/disk": "",
		"/kernel/sync":       "", "orders/sync": "", "": "",
	} {
		service, c, ok := parseID(id)
		if ok != (want != "") || ok && (service != want || waits.TracepointID(service, c) != id) {
			t.Errorf("%q: %q, %s, %v", id, service, c, ok)
		}
	}
}
