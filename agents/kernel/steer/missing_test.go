package steer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// incomplete returns the incomplete tracepoints with their reasons.
func (m *machine) incomplete() map[string]string {
	all := make(map[string]string)
	for _, o := range m.Outcomes() {
		if o.Incomplete {
			all[o.ID] = string(o.State) + ": " + o.Reason
		}
	}
	return all
}

// observedMachine returns a machine with two services whose classes sync, file and fault are on.
func observedMachine(t *testing.T) *machine {
	m := newMachine(t)
	m.start(10, "5", "OTEL_SERVICE_NAME=orders")
	m.start(11, "5", "OTEL_SERVICE_NAME=cart")
	m.look()
	m.Apply(planOf(1, "orders/kernel/sync", "orders/kernel/file", "orders/kernel/fault", "cart/kernel/sync"))
	return m
}

func waitOf(c waits.Class, d time.Duration) *waits.Part {
	return &waits.Part{Class: c, End: uint64(d)}
}

// Only a class that misses much of its time is incomplete. Sibyl is informed at once, even if its plan has changed
// meanwhile.
func TestMissingWaits(t *testing.T) {
	m := observedMachine(t)
	for range 1000 {
		m.record("orders", waitOf(waits.Sync, time.Millisecond), true)
		m.record("orders", waitOf(waits.File, 100*time.Microsecond), false)
		m.record("orders", waitOf(waits.Fault, 10*time.Microsecond), false)
		m.record("cart", waitOf(waits.Sync, time.Millisecond), true)
	}
	m.miss(map[waits.MissingKey]waits.Missed{
		{TGID: 10, Class: waits.Sync, Cause: waits.RingFull}: {Count: 400, TotalNs: 40e6}, // of 1.04 s: little
		{TGID: 10, Class: waits.File, Cause: waits.Limited}:  {Count: 6, TotalNs: 20e6},   // of 0.12 s
		{TGID: 10, Class: waits.Fault, Cause: waits.Cramped}: {Count: 900, TotalNs: 9e6},  // of 0.02 s; 1 s in all
		{TGID: 10, Class: waits.Net, Cause: waits.Limited}:   {Count: 99, TotalNs: 1e9},   // not in the plan
		{TGID: 77, Class: waits.Sync, Cause: waits.RingFull}: {Count: 99, TotalNs: 1e9},   // of no service
	}, nil)
	m.look()
	want := map[string]string{
		"orders/kernel/file": "applied: much of its time is missing: the process is over its limit",
	}
	if got := m.incomplete(); !maps.Equal(got, want) || len(m.due) != 1 {
		t.Errorf("incomplete %q, want %q; %d reports are due", got, want, len(m.due))
	}
	for _, o := range m.Outcomes() {
		if o.ID == "orders/kernel/sync" && (o.Drops != 400 || o.Hits != 1400) {
			t.Errorf("%+v", o)
		}
	}
	m.Apply(planOf(2, "cart/kernel/sync"))
	if got := m.incomplete(); !maps.Equal(got, want) {
		t.Errorf("after the plan changed: incomplete %q, want %q", got, want)
	}
	for range incompleteScans {
		m.look()
	}
	if got := m.incomplete(); len(got) > 0 {
		t.Errorf("long after: incomplete %q", got)
	}
}

// Waits that the receiver doesn't accept count as missing, even if they are few because the plan selects few
// requests.
func TestUnsentWaits(t *testing.T) {
	m := observedMachine(t)
	for i := range 1000 {
		m.record("orders", waitOf(waits.Sync, time.Millisecond), i < 10)
		m.record("cart", waitOf(waits.Sync, time.Millisecond), i < 10)
	}
	m.miss(nil, map[string]uint64{"orders/kernel/sync": 5})
	m.look()
	want := map[string]string{
		"orders/kernel/sync": "applied: much of its time is missing: the receiver does not accept them",
	}
	if got := m.incomplete(); !maps.Equal(got, want) {
		t.Errorf("incomplete %q, want %q", got, want)
	}
}

// If many records are missing and can't be attributed, everything is incomplete.
func TestMissingUnknown(t *testing.T) {
	for _, c := range []struct {
		losses waits.Losses
		want   string
	}{
		{waits.Losses{Switches: 40, Unseen: 900, Sums: 900, Stacks: 900, Limited: 900}, ""},
		{waits.Losses{Switches: 40, Threads: 20}, "the probes missed 60 of 1060 intervals"},
		{waits.Losses{Missed: 60}, "the probes missed 60 of 1060 intervals"},
		{waits.Losses{Gaps: 1}, "the agent was stopped"},
		{waits.Losses{Uncounted: 1}, "waits of very many processes"},
	} {
		m := observedMachine(t)
		m.missUnknown(&c.losses, 1000)
		got := m.incomplete()
		if c.want == "" && len(got) > 0 || c.want != "" && len(got) != 4 {
			t.Errorf("%+v: %q", c.losses, got)
		}
		for id, reason := range got {
			if !strings.Contains(reason, c.want) {
				t.Errorf("%s: %s, want %s", id, reason, c.want)
			}
		}
	}
}

// Waits suppressed by the agent's own limit make a class incomplete, too.
func TestLimitIsIncomplete(t *testing.T) {
	m := observedMachine(t)
	for m.level() < noEvents {
		m.judge(0.02)
	}
	got := m.incomplete()
	const limited = "failed: the kernel agent limits itself to 0.01 of a CPU"
	if len(got) != 4 || !strings.HasPrefix(got["orders/kernel/sync"], limited) || len(m.due) != 1 {
		t.Errorf("%q", got)
	}
}

// A program that starts processes of ever new services can't grow the catalogue without bound.
func TestManyServices(t *testing.T) {
	m := newMachine(t)
	for i := range maxServices + 10 {
		m.start(10+i, "5", fmt.Sprintf("OTEL_SERVICE_NAME=s%04d", i))
	}
	m.look()
	if n := len(m.serviceNames()); n != maxServices ||
		m.limits() != "services that are not announced: 10 (there are more than 256)" {
		t.Errorf("%d services, %s", n, m.limits())
	}
	byID := func(a, b protocol.Tracepoint) int { return strings.Compare(a.ID, b.ID) }
	if list := m.Catalogue(); len(list) != maxServices*(waits.NumClasses-1) || !slices.IsSortedFunc(list, byID) {
		t.Errorf("%d tracepoints", len(list))
	}
}

// Processes beyond the limit make their service incomplete, regardless of their order, and only if they are in the
// plan.
func TestManyProcesses(t *testing.T) {
	m := newMachine(t)
	cart := join.NewService(map[string]string{"service.name": "cart"})
	orders := join.NewService(map[string]string{"service.name": "orders"})
	for i := range uint32(kernel.MaxTargets + 5) {
		m.processes.all[100+i] = cart
	}
	m.processes.all[100_000] = orders
	m.processes.services["cart"], m.processes.services["orders"] = 1, 1
	m.Apply(planOf(1, "orders/kernel/sync"))
	m.expect("orders is in the plan", map[uint32]kernel.Target{100_000: on(true, waits.Sync)})
	if got := m.incomplete(); len(got) > 0 || m.limits() != "" {
		t.Errorf("incomplete %q, limits %q", got, m.limits())
	}
	m.Apply(planOf(2, "orders/kernel/sync", "cart/kernel/sync"))
	want := map[string]string{
		"cart/kernel/sync":   "applied: processes that are not observed: 5 (the plan has more than 4096)",
		"orders/kernel/sync": "applied: processes that are not observed: 1 (the plan has more than 4096)",
	}
	if got := m.incomplete(); !maps.Equal(got, want) || len(m.applied.Targets) != kernel.MaxTargets ||
		!strings.Contains(m.limits(), "services with processes that are not observed: 2") {
		t.Errorf("%d targets, incomplete %q, limits %q", len(m.applied.Targets), got, m.limits())
	}
}

// If several processes run the same program, and some don't provide their spans, the classes with many intervals in
// these processes are incomplete. Other programs with the same service name have no effect.
func TestSomeProcessesTellNothing(t *testing.T) {
	m := newMachine(t)
	lacks := map[uint32]error{11: errors.New("no labels"), 12: errors.New("no program")}
	programs := map[uint32]string{10: "/app/orders", 11: "/app/orders", 12: "/bin/sh"}
	m.steering.context = func(pid uint32) (join.Context, error) { return join.Context{}, lacks[pid] }
	m.steering.program = func(pid uint32) string { return programs[pid] }
	for pid := range programs {
		m.start(int(pid), "5", "OTEL_SERVICE_NAME=orders")
	}
	m.look()
	m.Apply(planOf(1, "orders/kernel/sync", "orders/kernel/file", "orders/kernel/child"))
	row := func(pid uint32, c waits.Class, n uint64) waits.Row {
		return waits.Row{Key: waits.Key{TGID: pid, TID: pid, Class: c}, Count: n}
	}
	m.distribute([]waits.Row{
		row(10, waits.Sync, 100), row(11, waits.Sync, 50), row(10, waits.File, 100), row(11, waits.File, 20),
		row(10, waits.Child, 1), row(12, waits.Child, 1000),
	}, 1)
	m.look()
	want := map[string]string{"orders/kernel/sync": "applied: much of its time is missing: " +
		"the spans of some of its processes are unknown: no labels"}
	if got := m.incomplete(); !maps.Equal(got, want) || len(m.due) != 1 {
		t.Errorf("incomplete %q, want %q; %d reports are due", got, want, len(m.due))
	}
	m.end(11)
	for range incompleteScans {
		m.look()
	}
	if got := m.incomplete(); len(got) > 0 {
		t.Errorf("long after it has ended: incomplete %q", got)
	}
}
