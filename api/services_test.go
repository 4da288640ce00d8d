package api

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

func (w *harness) services(t *testing.T, query string) contract.ServiceList {
	t.Helper()
	return decode[contract.ServiceList](t, w.call(t, http.MethodGet, "/api/v1/services"+query, nil))
}

// The suspect of an incident comes first; its rate, its usual rate and its trend agree.
func TestServices(t *testing.T) {
	w := newIncident(t)
	list := w.services(t, "")
	first := list.Items[0]
	x := w.incidents(t, "").Items[0]
	if first.Service != x.Service || first.State != contract.ServiceStateIncident || first.Incidents[0].ID != x.ID || first.Incidents[0].Rank != 1 || first.Incidents[0].Share <= 0 {
		t.Errorf("the first service is %+v, the incident is in %s", first, x.Service)
	}
	if first.Deploy == nil || first.Deploy.Version != "1.5" || first.Usual == nil || first.Now.P50Ns == nil {
		t.Errorf("the first service: %+v", first)
	}
	if n := len(list.Items); n != list.Total || n < 3 || list.States["incident"] < 1 || list.Learning {
		t.Errorf("%d services of %d, states %v", n, list.Total, list.States)
	}
	if *first.Now.OwnNs < 1.2**first.Usual.OwnNs {
		t.Errorf("own time %v, usually %v, although its CPU is busy", *first.Now.OwnNs, *first.Usual.OwnNs)
	}
	calls, bin := 0.0, time.Duration(list.BinNs)
	for i, rate := range first.Trend.Rate {
		length := min(bin, list.To.Sub(list.From)-time.Duration(i)*bin)
		if list.From.Add(time.Duration(i) * bin).Before(list.NowFrom) {
			continue
		}
		calls += rate * length.Seconds()
	}
	if math.Abs(calls-float64(first.Now.Calls)) > float64(first.Now.Calls)/5 { // a bin may begin before now does
		t.Errorf("the trend has %v calls, now has %d", calls, first.Now.Calls)
	}
	for _, sort := range []string{"name", "rate", "failed", "p50", "p99", "own"} {
		key := func(s contract.Service) float64 { return serviceSortKey(&s, contract.ListServicesParamsSort(sort)) }
		if all := w.services(t, "?sort="+sort).Items; !slices.IsSortedFunc(all, func(a, b contract.Service) int { return compareKeys(key(a), key(b)) }) {
			t.Errorf("not in the order of %s", sort)
		}
	}
	paged := []string{}
	for cursor := ""; ; {
		page := w.services(t, "?sort=name&limit=2&cursor="+url.QueryEscape(cursor))
		for _, s := range page.Items {
			paged = append(paged, s.Service)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if len(paged) != list.Total || !slices.IsSorted(paged) {
		t.Errorf("by pages: %v", paged)
	}
	for query, want := range map[string]int{
		"?q=" + first.Service: 1, "?q=none": 0, "?state=incident": list.States["incident"], "?state=silent": 0,
	} {
		if got := w.services(t, query); got.Total != want {
			t.Errorf("%s: %d services, want %d", query, got.Total, want)
		}
	}
}

// Nothing is well where requests begin that an open incident affects, whatever the last minutes look like.
func TestAffectedServices(t *testing.T) {
	w := newIncident(t)
	affected := w.incidents(t, "").Items[0].RequestTypes
	if len(affected) == 0 {
		t.Fatal("no request type is affected")
	}
	for i := range affected {
		id, err := analysis.ParseHash(affected[i].ID)
		if err != nil {
			t.Fatal(err)
		}
		entry := w.core.View().Groups.Group(id).Entry
		service, name := w.core.View().Table.ServiceName(entry), w.core.View().Table.OpName(entry)
		d := decode[contract.ServiceDetail](t, w.call(t, http.MethodGet, "/api/v1/services/"+url.PathEscape(service), nil))
		if d.Service.State == contract.ServiceStateWell {
			t.Errorf("%s is well", service)
		}
		for _, o := range d.Operations {
			if o.Operation == name && (o.State == contract.ServiceStateWell || o.Reason == "") {
				t.Errorf("%s %s is %s: %q", service, name, o.State, o.Reason)
			}
		}
	}
	table := &serviceTable{affected: map[trace.Op][]contract.IncidentRequestType{
		1: {{Name: "GET /a", MeanNs: 2.1e9, UsualNs: 80e6}, {Name: "GET /b"}}, 2: {{Name: "GET /c", MeanNs: 80e6, UsualNs: 80e6, Failed: 0.1, UsualFailed: 0.01}},
	}}
	for op, want := range map[trace.Op]string{
		1: "Requests of GET /a take 2.1 s on average since the onset of an open incident, usually 80 ms.",
		2: "10 % of the requests of GET /c fail since the onset of an open incident, usually 1 %.",
		3: "",
	} {
		if state, reason := table.affectedState(op, contract.ServiceStateWell, ""); reason != want || (state == contract.ServiceStateWell) != (want == "") {
			t.Errorf("%d: %s, %q", op, state, reason)
		}
		if state, _ := table.affectedState(op, contract.ServiceStateIdle, "Too few calls to judge."); (state == contract.ServiceStateIdle) != (want == "") {
			t.Errorf("%d: idle operations are %s", op, state)
		}
		if state, _ := table.affectedState(op, contract.ServiceStateSilent, "No calls."); state != contract.ServiceStateSilent {
			t.Errorf("%d: silent operations are %s", op, state)
		}
	}
}

// A service can be named by its ID and by its name. Its operations add up to it, and its neighbours know it.
func TestService(t *testing.T) {
	w := newIncident(t)
	first := w.services(t, "").Items[0]
	get := func(service string) contract.ServiceDetail {
		return decode[contract.ServiceDetail](t, w.call(t, http.MethodGet, "/api/v1/services/"+url.PathEscape(service), nil))
	}
	d := get(first.ID)
	if byName := get(first.Service); byName.Service.ID != first.ID {
		t.Errorf("by its name: %s", byName.Service.ID)
	}
	calls := 0
	for _, o := range d.Operations {
		calls += o.Now.Calls
		if o.Trend == nil {
			t.Errorf("operation %s has no trend", o.Operation)
		}
	}
	if calls != d.Service.Now.Calls || d.MoreOperations != 0 || len(d.Deploys) == 0 || d.Deploys[0].Version != "1.5" {
		t.Errorf("%d calls of operations; service: %+v", calls, d)
	}
	inside := 0
	for _, s := range w.services(t, "").Items {
		d := get(s.ID)
		inside += len(d.Inside)
		for _, x := range d.Inside {
			if slices.ContainsFunc(d.Operations, func(o contract.ServiceOperation) bool { return o.Operation == x.Operation && o.Kind == x.Kind }) {
				t.Errorf("%s is inside %s and at its border", x.Operation, s.Service)
			}
			if x.Spans == 0 || x.P50Ns <= 0 || x.P99Ns < x.P50Ns || (x.UsualP50Ns == nil) != (x.UsualP99Ns == nil) {
				t.Errorf("%+v", x)
			}
		}
	}
	if inside == 0 {
		t.Error("no operation is inside a service")
	}
	m := decode[contract.ServiceMap](t, w.call(t, http.MethodGet, "/api/v1/service-map", nil))
	in, out := 0, 0
	for _, c := range m.Calls {
		if c.Caller == first.Service {
			out++
		}
		if c.Callee == first.Service {
			in++
		}
	}
	if in != len(d.Callers) || out != len(d.Callees) || in+out == 0 || len(m.Services) != w.services(t, "").Total {
		t.Errorf("%d callers and %d callees on the map of %d services, %d and %d at the service", in, out, len(m.Services), len(d.Callers), len(d.Callees))
	}
	for _, unknown := range []string{"nobody", "0000000000000000"} {
		if out := w.call(t, http.MethodGet, "/api/v1/services/"+unknown, nil); out.Code != http.StatusNotFound {
			t.Errorf("%s: %d", unknown, out.Code)
		}
	}
	if out := w.callUnchecked(http.MethodGet, "/api/v1/services?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z"); out.Code != http.StatusBadRequest {
		t.Errorf("a time that ends before it begins: %d", out.Code)
	}
}

// The past shows the counts of that time, without durations, which are not kept.
func TestServicesOfThePast(t *testing.T) {
	w := newIncident(t)
	to := time.Unix(0, int64(begin)).Add(12 * time.Minute).UTC().Format(time.RFC3339)
	list := w.services(t, "?to="+url.QueryEscape(to))
	for _, s := range list.Items {
		if s.State == contract.ServiceStateIncident || s.Now.P50Ns != nil {
			t.Errorf("before the incident: %+v", s)
		}
	}
	if list.To.Format(time.RFC3339) != to || list.Items[0].Now.Calls == 0 {
		t.Errorf("until %v with %d calls", list.To, list.Items[0].Now.Calls)
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
		{load(30, 2./30, 10e6), usual, contract.ServiceStateWell, 0, 0}, // two may be chance
		{load(600, 0.01, 13e6), usual, contract.ServiceStateSlower, 0, 0},
		{load(600, 0.01, 10e6, 9e6), usual, contract.ServiceStateWell, 0, 0},
		{load(600, 0.01, 10e6, 11e6), usual, contract.ServiceStateSlower, 0, 0},
		{load(10, 0.01, 90e6), usual, contract.ServiceStateIdle, 0, 0}, // too few to judge
		{load(10, 0.01, 19e6), usual, contract.ServiceStateIdle, 0, 0},
		{load(600, 0.01, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		{load(5, 0.01, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		{load(600, 0.06, 10e6), usual, contract.ServiceStateSilent, 0, incident.Window},
		{load(30, 0.01, 10e6), load(60, 0.01, 10e6), contract.ServiceStateIdle, 0, incident.Window}, // usually 18 in this time
		{tailed(load(10, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateIdle, 0, 0},
		{load(600, 0, 100e3), load(6000, 0, 10e3), contract.ServiceStateWell, 0, 0}, // less than a millisecond
		{tailed(load(600, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateSlower, 9, 0},
		{tailed(load(600, 0.01, 10e6), 90e6), tailed(usual, 20e6), contract.ServiceStateWell, 1, 0}, // a few spans may be chance
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
	// The reason names the time that has grown most, unless that may be chance.
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

// A service that makes other calls names the version that was deployed then, and no earlier one.
func TestChangedCalls(t *testing.T) {
	table := &trace.Table{}
	cart, since := table.Symbol("cart"), trace.Nanos(time.Hour)
	changed := incident.ChangedCalls{Service: cart, Since: since, Share: 0.112}
	deploys := []engine.Deploy{
		{Service: cart, Version: table.Symbol("1.9"), At: since.Add(-time.Hour)},
		{Service: cart, Version: table.Symbol("2.0"), At: since.Add(time.Minute)},
		{Service: table.Symbol("shop"), Version: table.Symbol("7"), At: since.Add(time.Minute)},
	}
	for want, known := range map[string][]engine.Deploy{
		"makes 11 other calls per 100 requests, as 2.0 was deployed": deploys,
		"makes 11 other calls per 100 requests":                      deploys[:1],
	} {
		x := changedCalls(table, changed, known)
		if x.Text != want || (x.Version != nil) != (len(known) > 1) || !x.Since.Equal(at(since)) {
			t.Errorf("%+v, want %s", x, want)
		}
	}
}

// A service of which one of two instances stopped its exporter is not well: many calls get no answer from its spans.
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
		{"half lost", load(400, 200), load(4000, 40), "50 % of the calls to it are answered by none of its spans, usually 1 %: " +
			"check whether all of its instances export spans."},
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
