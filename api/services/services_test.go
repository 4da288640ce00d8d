package services

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// An operation is affected by an incident if the incident affects requests that start there.
func TestAffectedState(t *testing.T) {
	table := &serviceTable{affected: map[trace.Op][]contract.IncidentRequestType{
		1: {{Name: "GET /a", MeanNs: 2.1e9, UsualNs: 80e6}, {Name: "GET /b"}},
		2: {{Name: "GET /c", MeanNs: 80e6, UsualNs: 80e6, Failed: 0.1, UsualFailed: 0.01}},
	}}
	for op, want := range map[trace.Op]string{
		1: "Requests of GET /a take 2.1 s on average since the onset of an open incident, usually 80 ms.",
		2: "10 % of the requests of GET /c fail since the onset of an open incident, usually 1 %.",
		3: "",
	} {
		const well, idle, silent = contract.ServiceStateWell, contract.ServiceStateIdle, contract.ServiceStateSilent
		if state, reason := table.affectedState(op, well, ""); reason != want || (state == well) != (want == "") {
			t.Errorf("%d: %s, %q", op, state, reason)
		}
		if state, _ := table.affectedState(op, idle, "Too few calls to judge."); (state == idle) != (want == "") {
			t.Errorf("%d: idle operations are %s", op, state)
		}
		if state, _ := table.affectedState(op, silent, "No calls."); state != silent {
			t.Errorf("%d: silent operations are %s", op, state)
		}
	}
}

func TestStateOfService(t *testing.T) {
	load := func(calls int, failed, p50 float64, own ...float64) *contract.ServiceLoad {
		x := &contract.ServiceLoad{Calls: calls, Rate: float64(calls) / 600}
		if calls > 0 {
			x.Failed, x.P50Ns, x.OwnNs = &failed, &p50, new(append(own, 5e6)[0])
		}
		return x
	}
	tailed := func(x *contract.ServiceLoad, p99 float64) *contract.ServiceLoad {
		y := *x
		y.P99Ns = &p99
		return &y
	}
	usual := load(6000, 0.01, 10e6)
	for _, x := range []struct {
		now, usual *contract.ServiceLoad
		want       contract.ServiceState
		tail       float64
		quiet      time.Duration
	}{
		{load(0, 0, 0), nil, contract.ServiceStateIdle, 0, 0},
		{load(9, 0, 0), nil, contract.ServiceStateNew, 0, 0},
		{load(0, 0, 0), usual, contract.ServiceStateSilent, 0, 0},
		{load(0, 0, 0), load(10, 0, 1), contract.ServiceStateIdle, 0, 0},
		{load(600, 0.01, 10e6), usual, contract.ServiceStateWell, 0, 0},
		{load(600, 0.02, 10e6), usual, contract.ServiceStateWell, 0, 0},
		{load(600, 0.06, 10e6), usual, contract.ServiceStateFailing, 0, 0},
		{load(30, 2./30, 10e6), usual, contract.ServiceStateWell, 0, 0}, // two can be chance
		{load(600, 0.01, 13e6), usual, contract.ServiceStateSlower, 0, 0},
		{load(600, 0.01, 10e6, 9e6), usual, contract.ServiceStateWell, 0, 0},
		{load(600, 0.01, 10e6, 11e6), usual, contract.ServiceStateSlower, 0, 0},
		{load(10, 0.01, 90e6), usual, contract.ServiceStateIdle, 0, 0}, // too few to judge
		{load(10, 0.01, 19e6), usual, contract.ServiceStateIdle, 0, 0},
		{load(600, 0.01, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		{load(5, 0.01, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		{load(600, 0.06, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		// Usually there are 18 calls in this time.
		{load(30, 0.01, 10e6), load(60, 0.01, 10e6), contract.ServiceStateIdle, 0, incident.Window},
		{tailed(load(10, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateIdle, 0, 0},
		{load(600, 0, 100e3), load(6000, 0, 10e3), contract.ServiceStateWell, 0, 0}, // less than a millisecond
		{tailed(load(600, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateSlower, 9, 0},
		// One long span can be chance.
		{tailed(load(600, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateWell, 1, 0},
		{tailed(load(600, 0.01, 10e6), 24e6), tailed(usual, 20e6), contract.ServiceStateWell, 9, 0},
	} {
		figures := worse(x.now, x.usual, x.tail)
		got, reason := stateOf(x.now, x.usual, figures, x.quiet)
		if got != x.want || (reason == "") != (got == contract.ServiceStateWell) {
			t.Errorf("%+v, usually %+v: %s, %q; want %s", x.now, x.usual, got, reason, x.want)
		}
		if got == contract.ServiceStateWell && len(figures) > 0 {
			t.Errorf("%+v, usually %+v: well, although %v are worse", x.now, x.usual, figures)
		}
	}
	if len(urgency) != 7 {
		t.Error("a state has no urgency")
	}
	// The reason names the time that has grown most, unless that can be chance.
	busy := tailed(load(600, 0.01, 13e6, 12e6), 400e6)
	for tail, want := range map[float64]string{
		9: "The 99th percentile of the durations is 400 ms, usually 20 ms.",
		1: "The mean own time is 12 ms, usually 5 ms.",
	} {
		if _, reason := stateOf(busy, tailed(usual, 20e6), worse(busy, tailed(usual, 20e6), tail), 0); reason != want {
			t.Errorf("tail %v: %q, want %q", tail, reason, want)
		}
	}
}

// If a service makes different calls, the version deployed at that time is named, but no earlier version.
func TestChangedCalls(t *testing.T) {
	table := &trace.Table{}
	cart, since := table.Symbol("cart"), trace.Nanos(time.Hour)
	changed := incident.ChangedCalls{Service: cart, Since: since, Share: 0.112}
	deploys := []engine.Annotation{
		{Service: cart, Version: table.Symbol("1.9"), At: since.Add(-time.Hour)},
		{Service: cart, Version: table.Symbol("2.0"), At: since.Add(time.Minute)},
		{Service: table.Symbol("shop"), Version: table.Symbol("7"), At: since.Add(time.Minute)},
	}
	for want, known := range map[string][]engine.Annotation{
		"makes 11 other calls per 100 requests, as 2.0 was deployed": deploys,
		"makes 11 other calls per 100 requests":                      deploys[:1],
	} {
		x := changedCalls(table, changed, known)
		if x.Text != want || (x.Version != nil) != (len(known) > 1) || !x.Since.Equal(render.At(since)) {
			t.Errorf("%+v, want %s", x, want)
		}
	}
}

// If one of two instances of a service has stopped its exporter, the service isn't well: many calls get no answer from
// its spans.
func TestServiceWithLostSpans(t *testing.T) {
	cart, shop := trace.Symbol(1), trace.Symbol(2)
	load := func(calls, unanswered uint64) history.Usage {
		return history.Usage{Calls: calls, Unanswered: unanswered}
	}
	for _, c := range []struct {
		about      string
		now, usual history.Usage
		want       string
	}{
		{"all answered", load(400, 0), load(4000, 0), ""},
		{"some lost, as usual", load(400, 160), load(4000, 1500), ""},
		{
			"half lost", load(400, 200), load(4000, 40), "50 % of the calls to it have no span of it, usually 1 %: " +
				"check whether all of its instances export spans.",
		},
		{"too few calls", load(19, 19), load(4000, 0), ""},
		{"no calls", load(0, 0), load(0, 0), ""},
	} {
		table := serviceTable{uses: history.Uses{Calls: []history.CallUse{
			{Use: history.Use{Now: c.now, Usual: c.usual}, Caller: shop, Callee: cart},
			{Use: history.Use{Now: load(1000, 1000)}, Caller: cart, Callee: shop},
		}}}
		want := contract.ServiceStateWell
		if c.want != "" {
			want = contract.ServiceStateSilent
		}
		if state, reason := table.lostState(cart); state != want || reason != c.want {
			t.Errorf("%s: got %s, %q", c.about, state, reason)
		}
	}
}
