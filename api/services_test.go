package api

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

func (w *harness) services(t *testing.T, query string) contract.ServiceList {
	t.Helper()
	return fetch[contract.ServiceList](t, w, "/api/v1/services"+query)
}

// serviceOrders are the orders for lists of services.
var serviceOrders = map[string]func(a, b contract.Service) int{
	"name":   func(a, b contract.Service) int { return strings.Compare(a.Service, b.Service) },
	"rate":   falling(func(s *contract.Service) *float64 { return &s.Now.Rate }),
	"failed": falling(func(s *contract.Service) *float64 { return s.Now.Failed }),
	"p50":    falling(func(s *contract.Service) *float64 { return s.Now.P50Ns }),
	"p99":    falling(func(s *contract.Service) *float64 { return s.Now.P99Ns }),
	"own":    falling(func(s *contract.Service) *float64 { return s.Now.OwnNs }),
}

// falling returns an order of services by a figure, largest first. Services without the figure come last.
func falling(figure func(*contract.Service) *float64) func(a, b contract.Service) int {
	key := func(s *contract.Service) float64 {
		if x := figure(s); x != nil {
			return -*x
		}
		return math.Inf(1)
	}
	return func(a, b contract.Service) int { return cmp.Compare(key(&a), key(&b)) }
}

// The suspect of an incident comes first. Its rate, usual rate and trend are consistent.
func TestServices(t *testing.T) {
	w := newIncident(t)
	list := w.services(t, "")
	first := list.Items[0]
	x := w.incidents(t, "").Items[0]
	open := first.Incidents[0]
	if first.Service != x.Service || first.State != contract.ServiceStateIncident ||
		open.ID != x.ID || open.Rank != 1 || open.Share <= 0 {
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
	if first.NowFrom == nil || !first.NowFrom.Equal(w.incident(t).Incident.Onset) {
		t.Errorf("its figures start at %v, want the onset of its incident", first.NowFrom)
	}
	calls, bin := 0.0, time.Duration(list.BinNs)
	for i, rate := range first.Trend.Rate {
		length := min(bin, list.To.Sub(list.From)-time.Duration(i)*bin)
		if !list.From.Add(time.Duration(i) * bin).Before(*first.NowFrom) {
			calls += rate * length.Seconds()
		}
	}
	// the first bin may start before the onset, and the last may not be over
	if less := float64(first.Now.Calls) - calls; less < 0 || less > 2*first.Now.Rate*bin.Seconds() {
		t.Errorf("the trend has %v calls, now has %d", calls, first.Now.Calls)
	}
	for _, sort := range []string{"name", "rate", "failed", "p50", "p99", "own"} {
		if all := w.services(t, "?sort="+sort).Items; !slices.IsSortedFunc(all, serviceOrders[sort]) {
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

// If an open incident affects requests that start at an operation, nothing there is well, no matter what the last
// minutes look like.
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
		d := fetch[contract.ServiceDetail](t, w, "/api/v1/services/"+url.PathEscape(service))
		if d.Service.State == contract.ServiceStateWell {
			t.Errorf("%s is well", service)
		}
		for _, o := range d.Operations {
			if o.Operation == name && (o.State == contract.ServiceStateWell || o.Reason == "") {
				t.Errorf("%s %s is %s: %q", service, name, o.State, o.Reason)
			}
		}
	}
}

// Once an incident has ended because requests are back to normal, no service looks unwell because of the time before,
// which would contradict the incident.
func TestRecoveredServices(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	w.play(t, 100, func() bool { return w.now >= begin.Add(15*time.Minute) })
	w.alter = func(x *trace.Trace) {
		for i := range x.Spans {
			if x.Spans[i].Parent == 0 {
				x.Spans[i].Flags |= trace.Error
			}
		}
	}
	w.play(t, 100, func() bool { return len(w.core.View().Incidents.All()) > 0 })
	if list := w.services(t, ""); list.States["failing"]+list.States["incident"] == 0 {
		t.Fatalf("in the incident: %v", list.States)
	}
	w.alter = nil
	w.play(t, 100, func() bool { return !w.core.View().Incidents.All()[0].IsOpen() })
	ended := *w.incident(t).Incident.Ended
	list, since := w.services(t, ""), 0
	for _, s := range list.Items {
		if s.State == contract.ServiceStateFailing || s.State == contract.ServiceStateSlower {
			t.Errorf("%s: %s: %s", s.Service, s.State, s.Reason)
		}
		if s.NowFrom != nil {
			since++
			if !s.NowFrom.Equal(ended) {
				t.Errorf("%s since %v, want the end of the incident, %v", s.Service, s.NowFrom, ended)
			}
			d := fetch[contract.ServiceDetail](t, w, "/api/v1/services/"+s.ID)
			if d.Service.State != s.State || !d.NowFrom.Equal(ended) {
				t.Errorf("%s: its page says %s since %v", s.Service, d.Service.State, d.NowFrom)
			}
		}
	}
	if since == 0 {
		t.Error("no service is judged since the end of the incident")
	}
}

// An operation that nobody called before, such as a nightly job, makes its service neither slower nor unwell: no other
// operation takes longer.
func TestNightlyJob(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	w.play(t, 100, func() bool { return w.now >= begin.Add(15*time.Minute) })
	table, n := w.core.View().Table, 0
	job, service := table.Symbol("nightly job"), trace.Symbol(0)
	w.alter = func(x *trace.Trace) {
		root := slices.IndexFunc(x.Spans, func(s trace.Span) bool { return s.Parent == 0 })
		if n++; n%5 != 0 {
			return
		}
		s := &x.Spans[root]
		s.End = s.End.Add(20 * time.Second)
		s.Op, service = table.Op(s.Service, job, s.Kind), s.Service
	}
	w.play(t, 100, func() bool { return n > 500 })
	d := fetch[contract.ServiceDetail](t, w, "/api/v1/services/"+url.PathEscape(table.Text(service)))
	x := &d.Service
	if *x.Now.OwnNs < 2**x.Usual.OwnNs || len(d.Operations) < 2 {
		t.Fatalf("the job does not show: %+v, usually %+v", x.Now, x.Usual)
	}
	if x.State != contract.ServiceStateWell || len(x.Worse) > 0 {
		t.Errorf("%s: %s, worse %v", x.State, x.Reason, x.Worse)
	}
}

// A service can be looked up by its ID and by its name. Its figures are the sum over its operations, and its neighbours
// list it.
func TestService(t *testing.T) {
	w := newIncident(t)
	first := w.services(t, "").Items[0]
	get := func(service string) contract.ServiceDetail {
		return fetch[contract.ServiceDetail](t, w, "/api/v1/services/"+url.PathEscape(service))
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
	if calls != d.Service.Now.Calls || d.MoreOperations != 0 ||
		len(d.Annotations) == 0 || d.Annotations[0].Version != "1.5" {
		t.Errorf("%d calls of operations; service: %+v", calls, d)
	}
	inside := 0
	for _, s := range w.services(t, "").Items {
		d := get(s.ID)
		inside += len(d.Inside)
		for _, x := range d.Inside {
			if slices.ContainsFunc(d.Operations, func(o contract.ServiceOperation) bool {
				return o.Operation == x.Operation && o.Kind == x.Kind
			}) {
				t.Errorf("%s is inside %s and at its border", x.Operation, s.Service)
			}
			if x.Spans == 0 || x.P50Ns <= 0 || x.P99Ns < x.P50Ns || (x.UsualP50Ns == nil) != (x.UsualP99Ns == nil) {
				t.Errorf("%+v", x)
			}
			least := d.NowFrom.Add(-2 * time.Minute)
			if x.MeanNs <= 0 || x.From.Before(least) || x.To.After(d.To) || !x.From.Before(x.To) {
				t.Errorf("measured outside of the time from %v to %v: %+v", d.NowFrom, d.To, x)
			}
		}
	}
	for _, x := range d.Instances {
		if x.Now.Calls > 0 && (x.Now.P50Ns == nil || x.Now.MeanNs == nil || *x.Now.P99Ns < *x.Now.P50Ns) {
			t.Errorf("instance %+v", x)
		}
	}
	if p50, p99 := *d.Service.Trend.P50Ns, *d.Service.Trend.P99Ns; len(p50) != len(d.Service.Trend.Rate) ||
		p50[len(p50)-1] == nil || *p50[len(p50)-1] < 1.2**p50[1] || *p99[1] < *p50[1] {
		t.Errorf("medians %v and 99th percentiles %v over time, although its CPU is busy since the onset", p50, p99)
	}
	if inside == 0 {
		t.Error("no operation is inside a service")
	}
	m := fetch[contract.ServiceMap](t, w, "/api/v1/service-map")
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
		t.Errorf("%d callers and %d callees on the map of %d services, %d and %d at the service",
			in, out, len(m.Services), len(d.Callers), len(d.Callees))
	}
	for _, unknown := range []string{"nobody", "0000000000000000"} {
		w.expect(t, http.StatusNotFound, http.MethodGet, "/api/v1/services/"+unknown, nil)
	}
	// The time ends before it begins.
	w.expect(t, http.StatusBadRequest, http.MethodGet,
		"/api/v1/services?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z", nil)
}

// For the past, only the counts are shown, because durations aren't kept.
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
