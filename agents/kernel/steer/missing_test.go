package steer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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

// observedMachine returns a machine with two services whose classes sync and file are on.
func observedMachine(t *testing.T) *machine {
	m := newMachine(t)
	m.start(10, "5", "OTEL_SERVICE_NAME=orders")
	m.start(11, "5", "OTEL_SERVICE_NAME=cart")
	m.look()
	m.Apply(planOf(1, "orders/kernel/sync", "orders/kernel/file", "cart/kernel/sync"))
	return m
}

// A class that misses many waits is incomplete, and no other one. Sibyl learns it at once, and also if its
// plan has moved on meanwhile.
func TestMissingWaits(t *testing.T) {
	m := observedMachine(t)
	for range 1000 {
		m.record("orders", waits.Sync, true)
		m.record("orders", waits.File, false)
		m.record("cart", waits.Sync, true)
	}
	m.miss(map[waits.MissingKey]uint64{
		{TGID: 10, Class: waits.Sync, Cause: waits.RingFull}: 40, // of 1,040: few
		{TGID: 10, Class: waits.File, Cause: waits.Limited}:  60,
		{TGID: 10, Class: waits.Net, Cause: waits.Limited}:   99, // not in the plan
		{TGID: 77, Class: waits.Sync, Cause: waits.RingFull}: 99, // of no service
	}, nil)
	m.look()
	want := map[string]string{"orders/kernel/file": "applied: many of its waits are missing: there are more than the limit of a process"}
	if got := m.incomplete(); !maps.Equal(got, want) || len(m.due) != 1 {
		t.Errorf("incomplete %q, want %q; %d reports are due", got, want, len(m.due))
	}
	for _, o := range m.Outcomes() {
		if o.ID == "orders/kernel/sync" && (o.Drops != 40 || o.Hits != 1040) {
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

// Waits that the receiver does not take count as missing, also if they are few because the plan selects few requests.
func TestUnsentWaits(t *testing.T) {
	m := observedMachine(t)
	for i := range 1000 {
		m.record("orders", waits.Sync, i < 10)
		m.record("cart", waits.Sync, i < 10)
	}
	m.miss(nil, map[string]uint64{"orders/kernel/sync": 5})
	m.look()
	want := map[string]string{"orders/kernel/sync": "applied: many of its waits are missing: the receiver does not take them"}
	if got := m.incomplete(); !maps.Equal(got, want) {
		t.Errorf("incomplete %q, want %q", got, want)
	}
}

// Records that are missing without telling whose they are make everything incomplete, if they are many.
func TestMissingUnknown(t *testing.T) {
	for _, c := range []struct {
		losses waits.Losses
		want   string
	}{
		{waits.Losses{Switches: 40, Unseen: 900, Sums: 900, Stacks: 900, Limited: 900}, ""},
		{waits.Losses{Switches: 40, Threads: 20}, "the probes missed 60 of 1060 intervals"},
		{waits.Losses{Missed: 60}, "the probes missed 60 of 1060 intervals"},
		{waits.Losses{Gaps: 1}, "the agent stood still"},
		{waits.Losses{Uncounted: 1}, "waits of very many processes"},
	} {
		m := observedMachine(t)
		m.missUnknown(&c.losses, 1000)
		got := m.incomplete()
		if c.want == "" && len(got) > 0 || c.want != "" && len(got) != 3 {
			t.Errorf("%+v: %q", c.losses, got)
		}
		for id, reason := range got {
			if !strings.Contains(reason, c.want) {
				t.Errorf("%s: %s, want %s", id, reason, c.want)
			}
		}
	}
}

// What the agent's own limit suppresses is no evidence either.
func TestLimitIsIncomplete(t *testing.T) {
	m := observedMachine(t)
	for m.level() < noEvents {
		m.judge(0.02)
	}
	got := m.incomplete()
	if len(got) != 3 || !strings.HasPrefix(got["orders/kernel/sync"], "failed: the kernel agent limits itself to 0.01 of a CPU") || len(m.due) != 1 {
		t.Errorf("%q", got)
	}
}

// A program that starts processes of ever new services cannot make the catalogue grow without bound.
func TestManyServices(t *testing.T) {
	m := newMachine(t)
	for i := range maxServices + 10 {
		m.start(10+i, "5", fmt.Sprintf("OTEL_SERVICE_NAME=s%04d", i))
	}
	m.look()
	if n := len(m.serviceNames()); n != maxServices {
		t.Errorf("%d services", n)
	}
	if list := m.Catalogue(); len(list) != maxServices*(waits.NumClasses-1) || !slices.IsSortedFunc(list, func(a, b protocol.Tracepoint) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("%d tracepoints", len(list))
	}
}
