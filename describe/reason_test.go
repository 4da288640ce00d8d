package describe

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// The reason at a located place is described by its class, function or service, and host. The class decides the next
// step.
func TestReason(t *testing.T) {
	var table trace.Table
	n := New(&table, Verbatim)
	op := func(name string) trace.Op {
		return table.Op(table.Symbol("orders"), table.Symbol(name), trace.Internal)
	}
	sync, audit := op("wait sync"), op("audit.append")
	for _, c := range []struct {
		place      trace.Op
		why        engine.Reason
		text, next string
	}{
		{audit, engine.Reason{}, "orders audit.append carries 90 % of the added latency", ""},
		{
			audit,
			engine.Reason{Computes: true},
			"orders audit.append carries 90 % of the added latency: it computes, or waits inside its own process (the kernel sees no wait)",
			"",
		},
		{sync, engine.Reason{}, "90 % of the added latency is waiting for the disk (fsync) in orders", ""},
		{
			sync,
			engine.Reason{Wait: sync, Share: 0.93, Function: audit, Host: table.Symbol("b")},
			"93 % of the added latency is waiting for the disk (fsync) in orders audit.append, on host b",
			"Look at the disk of host b, at what else uses it, and at how much orders audit.append reads and writes. That is 93 % of the added latency.",
		},
		{
			audit,
			engine.Reason{Wait: op("wait futex"), Share: 0.93},
			"93 % of the added latency is waiting for a lock in orders audit.append",
			"Look at what holds the lock for which orders audit.append waits; the waits in sample traces have stacks. That is 93 % of the added latency.",
		},
		{
			op("wait runqueue"),
			engine.Reason{Wait: op("wait runqueue"), Share: 1},
			"all of the added latency is waiting for a CPU in orders",
			"Look at the other programs on its host, which take the CPU from orders, and at the CPU limit of orders. That is all of the added latency.",
		},
		{
			op("wait tty"),
			engine.Reason{Wait: op("wait tty"), Share: 1},
			"all of the added latency is waiting for a terminal in orders",
			"Look at orders: it spends its time waiting for a terminal. That is all of the added latency.",
		},
		{
			op("wait other"),
			engine.Reason{Wait: op("wait other"), Share: 1},
			"all of the added latency is waiting for something else in the kernel in orders",
			"Look at orders: something stops it, such as a debugger or a signal, or it waits for a device; the waits in sample traces have stacks. That is all of the added latency.",
		},
	} {
		if got := Located(n, c.place, 0.9, c.why).String(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
		unknown := c.why
		unknown.Share = 0
		got := Located(n, c.place, 0, unknown).And(waitRemedy(n, c.place, &unknown)).String()
		if strings.Contains(got, "%") || strings.Contains(got, "all of") || got == "" {
			t.Errorf("%q has a share, which is unknown", got)
		}
		if c.next == "" {
			continue
		}
		if got := waitRemedy(n, c.place, &c.why).String(); got != c.next {
			t.Errorf("%q, want %q", got, c.next)
		}
	}
}
