package search

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestWaitSentence(t *testing.T) {
	var table trace.Table
	op := func(service, name string) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), trace.Internal)
	}
	host := func(key, value string, effect, p float64) *detect.Problem {
		return &detect.Problem{Explanations: []detect.Explanation{
			{Variable: "tenant", Value: "x", Effect: 0.9, PValue: 0.001}, {Variable: key, Value: value, Effect: effect, PValue: p},
		}}
	}
	none := &detect.Problem{}
	for _, c := range []struct {
		share   float64
		op      trace.Op
		problem *detect.Problem
		want    string
	}{
		{0.82, op("orders", "wait sync"), host("host.name", "b", 0.4, 0.01), "82 % of it is waiting for the disk (fsync) in orders, on host b"},
		{0.82, op("orders", "wait sync"), host("host.name", "b", 0.1, 0.01), "82 % of it is waiting for the disk (fsync) in orders"},
		{0.82, op("orders", "wait sync"), host("host.name", "b", 0.4, 0.2), "82 % of it is waiting for the disk (fsync) in orders"},
		{0.82, op("orders", "wait sync"), host("host.name", "", 0.4, 0.01), "82 % of it is waiting for the disk (fsync) in orders"},
		{1, op("orders", "wait runqueue"), host("k8s.pod.name", "orders-1", 0.4, 0.01), "all of it is waiting for a CPU (on a run queue) in orders, on pod orders-1"},
		{0.5, op("orders", "kernel.disk:sda"), none, "50 % of it is waiting in the kernel in orders"},
		{0.5, op("orders", "wait for Godot"), none, "50 % of it is waiting in the kernel in orders"},
	} {
		if got := waitSentence(c.share, c.op, c.problem, &table); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := waitSentence(0.5, 1, none, nil); got != "50 % of it is waiting in the kernel" {
		t.Error(got)
	}
}
