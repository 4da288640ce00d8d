package services

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Operations with few calls are counted and named, most calls first. If there are no calls, the text is empty.
func TestFewCalls(t *testing.T) {
	names := new(trace.Table)
	services := []trace.Symbol{names.Symbol("pay"), names.Symbol("cart"), names.Symbol("unknown")}
	op := func(service trace.Symbol, name string) trace.Op {
		return names.Op(service, names.Symbol(name), trace.Server)
	}
	use := func(calls uint64) history.Use {
		return history.Use{Now: history.Usage{Calls: calls}, Usual: history.Usage{Calls: 50}, Known: leastUsual}
	}
	table := func(charge, refund, get uint64) *serviceTable {
		return &serviceTable{uses: history.Uses{Services: []history.ServiceUse{
			{Service: services[0], Use: use(charge + refund), Operations: []history.OperationUse{
				{Use: use(refund), Op: op(services[0], "refund")}, {Use: use(charge), Op: op(services[0], "charge")},
			}},
			{Service: services[1], Use: use(get), Operations: []history.OperationUse{
				{Use: use(get), Op: op(services[1], "get")},
			}},
			{Service: services[2], Use: history.Use{}}, // it has no past
		}}}
	}
	f := table(9, 1, 990).fewCalls(names)
	const want = "2 of 3 operations, with 1 % of the calls, had fewer than 20 calls in ten minutes: " +
		"charge of pay (9), refund of pay (1). 1 of 2 services had that few in total."
	if !strings.HasPrefix(f.Text, want) || f.Remedy != "" || f.Count != 2 || f.Services != 1 {
		t.Errorf("%+v, want %s", f, want)
	}
	if f := table(19, 0, 81).fewCalls(names); f.Remedy == "" || f.ShareOfCalls != 0.19 {
		t.Errorf("%+v, want a remedy for 19 %% of the calls", f)
	}
	if f := table(20, 20, 20).fewCalls(names); f.Text != "" || f.Count != 0 {
		t.Errorf("%+v, want nothing", f)
	}
	if f := table(0, 0, 0).fewCalls(names); f.Text != "" || f.Count != 3 {
		t.Errorf("%+v, want no text", f)
	}
}
