// Package services serves services: their figures, the map of their calls, their deploys and objectives.
package services

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Lengths of the windows for services.
const (
	nowWindow   = 10 * time.Minute // calls in it count as now
	trendLength = time.Hour        // default length
	trendBins   = 60
	leastUsual  = 5 * time.Minute // minimum length of the history to compare with
)

// Limits on answers about services.
const (
	shownServiceOperations = 500
	shownInside            = 100 // operations inside a service
	shownDeploys           = 20
	mappedServices         = 2000
	mappedCalls            = 10_000
	keptServiceTables      = 8 // of the latest snapshot
)

// Thresholds for the states of services, used to sort a list. Incidents have their own thresholds, which are stricter.
const (
	leastCalls       = 20   // calls now, to judge durations and errors
	leastMissing     = 30   // calls that would usually have come while a service is silent
	leastServiceFail = 0.02 // share of the calls, above the usual share
	leastLost        = 0.1  // the same, for calls that no span answers
	leastSlower      = 1.25 // times the usual median
	leastSlowerMean  = 2    // times the usual mean of own times, which varies more
	leastSlowerNanos = 1e6  // 1 ms
	leastFewSlower   = 2    // times the usual quantile; calls above it are not well, even if they are too few to judge

	leastTail           = 5 // spans longer than the usual 99th percentile, to judge it
	leastTailDeviations = 4 // standard deviations of their number

	leastAffectedSlower = 1.05 // times the usual mean, for a request type that an incident affects; as for incidents
)

// serviceKey identifies a table of services within a snapshot.
type serviceKey struct{ from, to trace.Nanos }

// serviceTable is the use of all services in a time span.
type serviceTable struct {
	uses  history.Uses
	rows  []contract.Service // in the order of uses.Services; without owners
	calls []contract.ServiceCall
	live  bool // it ends with the last epoch
	// Request types that open incidents affect, by entry operation, most added latency first. It is nil if the table
	// isn't live.
	affected map[trace.Op][]contract.IncidentRequestType
}

// Services serves services, their deploys and objectives. It is safe for concurrent use.
type Services struct {
	reader    *epoch.Reader
	directory func() *directory.Directory // owners of services

	mu     sync.Mutex                   // guards the fields below
	of     *epoch.Snapshot              // snapshot that the tables belong to
	tables map[serviceKey]*serviceTable // nil before the first
	few    *contract.FewCalls           // nil if not yet known
	fewAt  trace.Nanos                  // end of the epoch of few
}

// New returns handlers that take the owners of services from a directory.
func New(r *epoch.Reader, directory func() *directory.Directory) *Services {
	return &Services{reader: r, directory: directory}
}

// table returns the use of all services in the time span key as of s; a bound of 0 means the default. It returns
// ErrOrder if the span is empty. The caller must be allowed to read c now.
func (a *Services) table(c *engine.View, s *epoch.Snapshot, key serviceKey) (*serviceTable, error) {
	if key.to == 0 || key.to > s.Ended {
		key.to = s.Ended
	}
	if key.from == 0 {
		key.from = key.to.Add(-trendLength)
	}
	if key.from >= key.to && s.Ended != 0 {
		return nil, query.ErrOrder
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tables[key]; t != nil && a.of == s {
		return t, nil
	}
	if a.of != s || len(a.tables) >= keptServiceTables {
		a.of, a.tables = s, make(map[serviceKey]*serviceTable)
	}
	t := newServiceTable(c, s, key, 0)
	a.tables[key] = t
	return t, nil
}

// newServiceTable returns the table of services for the time span key. It includes series for the operations of the
// service detailed, unless that is 0.
func newServiceTable(c *engine.View, s *epoch.Snapshot, key serviceKey, detailed trace.Symbol) *serviceTable {
	h := c.History
	now := history.Interval{From: max(key.to.Add(-nowWindow), h.Requests.Since()), To: key.to}
	t := &serviceTable{uses: h.Uses(now, key.from, trendBins, detailed), live: key.to == s.Ended}
	if t.live {
		t.affected = affectedEntries(s, c)
	}
	deploys, incidents := latestDeploys(c, key.to), suspectedServices(s)
	for i := range t.uses.Services {
		t.rows = append(t.rows, t.service(c, &t.uses.Services[i], deploys, incidents))
	}
	for i := range t.uses.Calls {
		t.calls = append(t.calls, t.call(c.Table, &t.uses.Calls[i]))
	}
	if t.live {
		t.noteCalls(c)
	}
	return t
}

// noteCalls adds the changed calls of services.
func (t *serviceTable) noteCalls(c *engine.View) {
	for _, changed := range c.Incidents.ChangedCalls() {
		i := slices.IndexFunc(t.uses.Services, func(x history.ServiceUse) bool { return x.Service == changed.Service })
		if i >= 0 {
			t.rows[i].ChangedCalls = changedCalls(c.Table, changed, c.Deploys)
		}
	}
}

// deployedWith is the maximum time between a deploy and changed calls that are attributed to it.
const deployedWith = 2 * time.Minute

// changedCalls describes changed calls. deploys are all known deploys, oldest first.
func changedCalls(names *trace.Table, changed incident.ChangedCalls, deploys []engine.Deploy) *contract.ChangedCalls {
	x := &contract.ChangedCalls{Since: render.At(changed.Since), Per100Requests: 100 * changed.Share}
	x.Text = "makes " + units.Plural(max(1, int(math.Round(x.Per100Requests))), "other call") + " per 100 requests"
	for _, d := range slices.Backward(deploys) {
		if d.Service == changed.Service && d.At.Sub(changed.Since).Abs() <= deployedWith {
			x.Version = new(names.Text(d.Version))
			x.Text += ", as " + *x.Version + " was deployed"
			break
		}
	}
	return x
}

// latestDeploys returns each service's latest deploy that is earlier than `before`.
func latestDeploys(c *engine.View, before trace.Nanos) map[trace.Symbol]contract.Deploy {
	latest := make(map[trace.Symbol]contract.Deploy)
	for _, d := range c.Deploys { // oldest first
		if d.At < before {
			latest[d.Service] = render.Deploy(c.Table, d)
		}
	}
	return latest
}

// suspectedServices returns, by service name, the open incidents that suspect the service.
func suspectedServices(s *epoch.Snapshot) map[string][]contract.ServiceIncident {
	found := make(map[string][]contract.ServiceIncident)
	for i := range s.Incidents {
		x := &s.Incidents[i]
		if x.Closed != nil || !x.Listed {
			continue
		}
		shares := suspectShares(x.Suspects)
		for k := range x.Suspects {
			name := x.Suspects[k].Service
			found[name] = append(found[name], contract.ServiceIncident{ID: x.ID, Share: shares[k], Rank: k + 1})
		}
	}
	return found
}

// affectedEntries returns the request types that open incidents affect, by entry operation.
func affectedEntries(s *epoch.Snapshot, c *engine.View) map[trace.Op][]contract.IncidentRequestType {
	found := make(map[trace.Op][]contract.IncidentRequestType)
	for i := range s.Incidents {
		x := &s.Incidents[i]
		if x.Closed != nil || !x.Listed {
			continue
		}
		for k := range x.RequestTypes {
			id, err := analysis.ParseHash(x.RequestTypes[k].ID)
			if g := c.Groups.Group(id); err == nil && g != nil {
				found[g.Entry] = append(found[g.Entry], x.RequestTypes[k])
			}
		}
	}
	return found
}

// suspectShares returns each suspect's share of the latency that all suspects add, as used in sentences. If no suspect
// adds latency, it returns the shares of the scores.
func suspectShares(all []contract.IncidentSuspect) []float64 {
	added := func(x *contract.IncidentSuspect) float64 {
		return x.Parts.Own + x.Parts.In + x.Parts.Out + x.Parts.Rest
	}
	if !slices.ContainsFunc(all, func(x contract.IncidentSuspect) bool { return added(&x) > 0 }) {
		added = func(x *contract.IncidentSuspect) float64 { return x.Score }
	}
	total := 0.0
	for i := range all {
		if x := &all[i]; x.EmitsSpans || i == 0 {
			total += added(x)
		} else {
			total += added(x) - x.Parts.Rest // Rest is also own time of its callers
		}
	}
	shares := make([]float64, len(all))
	for i := range all {
		if total > 0 {
			shares[i] = min(1, added(&all[i])/total)
		}
	}
	return shares
}

func (t *serviceTable) service(c *engine.View, x *history.ServiceUse, deploys map[trace.Symbol]contract.Deploy,
	incidents map[string][]contract.ServiceIncident,
) contract.Service {
	name := c.Table.Text(x.Service)
	s := contract.Service{
		ID:         render.Hex16(uint64(x.Service)),
		Service:    name,
		EmitsSpans: !x.Opaque,
		Operations: len(x.Operations),
		Versions:   []string{},
		Incidents:  append([]contract.ServiceIncident{}, incidents[name]...),
		Trend:      t.trend(x.Series),
	}
	var latest, usual stats.Ranks
	for i := range x.Operations {
		a, b := c.Spans.Latest(x.Operations[i].Op), c.Spans.Usual(x.Operations[i].Op)
		latest.Merge(&a)
		usual.Merge(&b)
	}
	s.Now, s.Usual = t.loads(&x.Use, &latest, &usual)
	s.Worse = worse(&s.Now, s.Usual, t.tail(&latest, &usual))
	if d, ok := deploys[x.Service]; ok {
		s.Deploy = &d
	}
	s.State, s.Reason = stateOf(&s.Now, s.Usual, s.Worse, t.quiet(&x.Use))
	if s.State == contract.ServiceStateWell && !x.Opaque {
		s.State, s.Reason = t.lostState(x.Service)
	}
	for i := range x.Operations {
		s.State, s.Reason = t.affectedState(x.Operations[i].Op, s.State, s.Reason)
	}
	first := slices.IndexFunc(s.Incidents, func(x contract.ServiceIncident) bool { return x.Rank == 1 })
	if first >= 0 && t.live {
		s.State = contract.ServiceStateIncident
		s.Reason = "The first suspect of an open incident: " + units.Percent(s.Incidents[first].Share) + " of the cost."
	}
	t.countInstances(c, x.Service, &s)
	return s
}

// countInstances sets the number of instances and the versions that have calls now.
func (t *serviceTable) countInstances(c *engine.View, service trace.Symbol, s *contract.Service) {
	first := trace.Symbol(0) // the most specific attribute that distinguishes instances
	for _, x := range c.History.Instances.Uses(service, t.uses.Now, t.uses.Now.From) {
		switch key := c.Table.Text(x.Key); {
		case key == "service.version":
			s.Versions = append(s.Versions, c.Table.Text(x.Value))
		case first == 0 || first == x.Key:
			first = x.Key
			s.Instances++
		}
	}
	slices.Sort(s.Versions)
}

// loads returns the load now and the usual load, which is nil if unknown. latest and `before` are the current and the
// usual durations of the spans. They are ignored unless the table is live.
func (t *serviceTable) loads(
	x *history.Use, latest, before *stats.Ranks,
) (now contract.ServiceLoad, usual *contract.ServiceLoad) {
	if !t.live {
		latest, before = &stats.Ranks{}, &stats.Ranks{}
	}
	now = loadOf(x.Now, t.uses.Now.To.Sub(t.uses.Now.From), latest)
	if x.Known >= leastUsual && x.Usual.Calls > 0 {
		usual = new(loadOf(x.Usual, x.Known, before))
	}
	return now, usual
}

func loadOf(u history.Usage, in time.Duration, spans *stats.Ranks) contract.ServiceLoad {
	x := contract.ServiceLoad{Calls: int(u.Calls), Rate: float64(u.Calls) / max(1, in.Seconds())}
	if u.Calls > 0 {
		x.Failed, x.OwnNs = new(float64(u.Failed)/float64(u.Calls)), new(float64(u.Nanos)/float64(u.Calls))
	}
	if spans.Count() > 0 {
		x.P50Ns, x.P99Ns = new(spans.Quantile(0.5)), new(spans.Quantile(0.99))
	}
	return x
}

// trend converts a series to the type of the contract, or returns nil for nil. It omits a bin that isn't over because
// it would look like a change.
func (t *serviceTable) trend(series []history.Usage) *contract.ServiceTrend {
	if series == nil {
		return nil
	}
	over := min(len(series), int(t.uses.Now.To.Sub(t.uses.From)/t.uses.Bin))
	x := &contract.ServiceTrend{
		Rate: make([]float64, over), Failed: make([]*float64, over), OwnNs: make([]*float64, over),
	}
	for i := range series[:over] {
		load := loadOf(series[i], t.uses.Bin, &stats.Ranks{})
		x.Rate[i], x.Failed[i], x.OwnNs[i] = load.Rate, load.Failed, load.OwnNs
	}
	return x
}

func (t *serviceTable) call(names *trace.Table, x *history.CallUse) contract.ServiceCall {
	c := contract.ServiceCall{Caller: names.Text(x.Caller), Callee: names.Text(x.Callee)}
	c.Now, c.Usual = t.loads(&x.Use, &stats.Ranks{}, &stats.Ranks{})
	return c
}

// tail measures how many more of the latest spans than usual exceed the usual 99th percentile, in standard deviations.
// It returns 0 if fewer than leastTail do, if there are no spans to compare, or if the table isn't live.
func (t *serviceTable) tail(latest, usual *stats.Ranks) float64 {
	if !t.live || latest.Count() == 0 || usual.Count() == 0 {
		return 0
	}
	n := float64(latest.Count())
	longer := n * (1 - latest.Below(int64(usual.Quantile(0.99))))
	if longer < leastTail {
		return 0
	}
	return (longer - n/100) / math.Sqrt(n/100)
}

// worse returns the figures that are clearly worse now than usual. It returns nil if usual is nil or there are too few
// calls to judge. tail is the result of [serviceTable.tail].
func worse(now, usual *contract.ServiceLoad, tail float64) []contract.ServiceFigure {
	all := []contract.ServiceFigure{}
	if usual == nil || now.Calls < leastCalls {
		return all
	}
	for _, x := range []struct {
		figure contract.ServiceFigure
		worse  bool
	}{
		{contract.ServiceFigureFailed, failsMore(now, usual)},
		{contract.ServiceFigureP50Ns, above(now.P50Ns, usual.P50Ns, leastSlower)},
		{contract.ServiceFigureP99Ns, above(now.P99Ns, usual.P99Ns, leastSlower) && tail >= leastTailDeviations},
		{contract.ServiceFigureOwnNs, above(now.OwnNs, usual.OwnNs, leastSlowerMean)},
	} {
		if x.worse {
			all = append(all, x.figure)
		}
	}
	return all
}

// above reports whether now is at least `least` times the usual time, and longer by at least leastSlowerNanos. It
// returns false if either time is unknown.
func above(now, usual *float64, least float64) bool {
	return now != nil && usual != nil && *now >= least**usual && *now-*usual >= leastSlowerNanos
}

// quiet returns the time since the last call, except for the latest time, whose calls may not be known yet. It returns
// 0 if there were no calls.
func (t *serviceTable) quiet(x *history.Use) time.Duration {
	if x.Last == 0 {
		return 0
	}
	return max(0, t.uses.Now.To.Sub(x.Last)-x.Open)
}

// stateOf returns the state of a service or an operation, and the reason for it. worse are its worse figures, and quiet
// is the time without calls. Only services and operations that are judged can be well.
func stateOf(now, usual *contract.ServiceLoad, worse []contract.ServiceFigure,
	quiet time.Duration,
) (contract.ServiceState, string) {
	switch {
	case usual == nil && now.Calls == 0:
		return contract.ServiceStateIdle, "No calls."
	case usual == nil:
		return contract.ServiceStateNew, "There is no history to compare with yet."
	case now.Calls == 0 && usual.Rate*nowWindow.Seconds() >= leastMissing:
		return contract.ServiceStateSilent, noCalls(quiet, usual)
	case now.Calls == 0:
		return contract.ServiceStateIdle, noCalls(quiet, usual)
	case quiet >= incident.Window && usual.Rate*quiet.Seconds() >= leastMissing:
		return contract.ServiceStateSilent, noCalls(quiet, usual)
	case now.Calls < leastCalls && above(now.P50Ns, usual.P50Ns, leastFewSlower):
		return contract.ServiceStateIdle, tooFew(now.Calls, "median duration", *now.P50Ns, *usual.P50Ns)
	case now.Calls < leastCalls && above(now.P99Ns, usual.P99Ns, leastFewSlower):
		const tail = "99th percentile of the durations"
		return contract.ServiceStateIdle, tooFew(now.Calls, tail, *now.P99Ns, *usual.P99Ns)
	case now.Calls < leastCalls:
		return contract.ServiceStateIdle, fewCalls(now, usual, quiet)
	case len(worse) == 0 && quiet >= incident.Window:
		return contract.ServiceStateIdle, noCalls(quiet, usual)
	case len(worse) == 0:
		return contract.ServiceStateWell, ""
	case worse[0] == contract.ServiceFigureFailed:
		return contract.ServiceStateFailing, units.Percent(*now.Failed) + " of the calls fail, usually " +
			units.Percent(query.Value(usual.Failed, 0)) + "."
	}
	return contract.ServiceStateSlower, mostGrown(now, usual, worse)
}

// lostState returns the state of a service whose own spans look well. It isn't well if its spans don't answer many more
// of the calls to it than usual.
func (t *serviceTable) lostState(service trace.Symbol) (contract.ServiceState, string) {
	var now, usual history.Usage
	for i := range t.uses.Calls {
		if c := &t.uses.Calls[i]; c.Callee == service {
			now.Add(c.Now)
			usual.Add(c.Usual)
		}
	}
	lost, before := share(now.Unanswered, now.Calls), share(usual.Unanswered, usual.Calls)
	if now.Calls < leastCalls || lost < before+leastLost {
		return contract.ServiceStateWell, ""
	}
	if failed := share(now.Failed, now.Calls); failed >= share(usual.Failed, usual.Calls)+leastLost/2 {
		return contract.ServiceStateFailing, units.Percent(failed) + " of the calls to it fail, many before it " +
			"answers: check whether all of its instances run and can be reached."
	}
	return contract.ServiceStateSilent, units.Percent(lost) + " of the calls to it have no span of it, usually " +
		"" + units.Percent(before) + ": check whether all of its instances export spans."
}

func share(part, whole uint64) float64 { return float64(part) / float64(max(1, whole)) }

// noCalls describes how long there have been no calls.
func noCalls(quiet time.Duration, usual *contract.ServiceLoad) string {
	return "No calls for " + units.Coarse(quiet) + "; usually " + units.Rate(usual.Rate) + "."
}

// fewCalls describes that there are too few calls to judge, and whether they fail.
func fewCalls(now, usual *contract.ServiceLoad, quiet time.Duration) string {
	text := "Too few calls to judge: " + units.Count(now.Calls) + " in ten minutes"
	if failed, before := query.Value(now.Failed, 0), query.Value(usual.Failed, 0); failed > before+leastServiceFail {
		text += ", of which " + units.Percent(failed) + " fail, usually " + units.Percent(before)
	}
	if quiet >= incident.Window {
		text += "; none for " + units.Coarse(quiet)
	}
	return text + "."
}

// Attention returns the services that are failing, silent or slower as of s. The first suspects of open incidents have
// another state, so they aren't included. The caller must be allowed to read c now.
func (a *Services) Attention(c *engine.View, s *epoch.Snapshot) ([]contract.ServiceAttention, error) {
	t, err := a.table(c, s, serviceKey{})
	if err != nil {
		return nil, err
	}
	found := []contract.ServiceAttention{}
	for _, state := range []contract.ServiceState{
		contract.ServiceStateFailing,
		contract.ServiceStateSilent, contract.ServiceStateSlower,
	} {
		for i := range t.rows {
			if x := &t.rows[i]; x.State == state {
				found = append(found, contract.ServiceAttention{
					ID:      x.ID,
					Service: x.Service,
					State:   x.State,
					Reason:  x.Reason,
				})
			}
		}
	}
	return found, nil
}

// mostGrown describes the time in worse that has grown most relative to the usual time, because that one tells most
// about the service.
func mostGrown(now, usual *contract.ServiceLoad, worse []contract.ServiceFigure) string {
	text, most := "", 0.0
	for _, x := range []struct {
		figure     contract.ServiceFigure
		what       string
		now, usual *float64
	}{
		{contract.ServiceFigureP50Ns, "The median duration", now.P50Ns, usual.P50Ns},
		{contract.ServiceFigureP99Ns, "The 99th percentile of the durations", now.P99Ns, usual.P99Ns},
		{contract.ServiceFigureOwnNs, "The mean own time", now.OwnNs, usual.OwnNs},
	} {
		if !slices.Contains(worse, x.figure) {
			continue
		}
		if growth := *x.now / max(1, *x.usual); growth > most {
			text, most = x.what+" is "+units.Nanos(*x.now)+", usually "+units.Nanos(*x.usual)+".", growth
		}
	}
	return text
}

// tooFew explains why calls aren't judged although a quantile of their durations, in ns, is longer than usual.
func tooFew(calls int, quantile string, now, usual float64) string {
	return "Too few calls to judge: the " + quantile + " of " + units.Count(calls) + " is " + units.Nanos(now) +
		", usually " + units.Nanos(usual) + "."
}

// affectedState returns the state of an operation, and the reason for it. If an open incident affects requests that
// start there, the operation isn't well or idle, even if its own figures are: these include all calls of the last few
// minutes.
func (t *serviceTable) affectedState(
	op trace.Op, state contract.ServiceState, reason string,
) (contract.ServiceState, string) {
	types := t.affected[op]
	if state != contract.ServiceStateWell && state != contract.ServiceStateIdle || len(types) == 0 {
		return state, reason
	}
	x := &types[0]
	since := " since the onset of an open incident, usually "
	if x.MeanNs >= leastAffectedSlower*x.UsualNs {
		return contract.ServiceStateSlower, "Requests of " + x.Name + " take " + units.Nanos(x.MeanNs) +
			" on average" + since + units.Nanos(x.UsualNs) + "."
	}
	return contract.ServiceStateFailing, units.Percent(x.Failed) + " of the requests of " + x.Name +
		" fail" + since + units.Percent(x.UsualFailed) + "."
}

// failsMore reports whether clearly more calls fail than usual.
func failsMore(now, usual *contract.ServiceLoad) bool {
	failed, before, n := query.Value(now.Failed, 0), query.Value(usual.Failed, 0), float64(now.Calls)
	chance := 3 * math.Sqrt(max(before, 1/n)*(1-min(before, 1))/n)
	return failed*n >= leastAffectedCalls && failed-before > max(leastServiceFail, chance)
}

const leastAffectedCalls = 3 // failed calls

// urgency is the order of states in lists.
var urgency = []contract.ServiceState{
	contract.ServiceStateIncident, contract.ServiceStateFailing, contract.ServiceStateSilent,
	contract.ServiceStateSlower,
	contract.ServiceStateNew, contract.ServiceStateWell, contract.ServiceStateIdle,
}

// askServices calls read with the use of the services in the time span from `from` to `to`, which are parameters of a
// request.
func (a *Services) askServices(
	ctx context.Context, from, to *string, read func(*engine.View, *epoch.Snapshot, *serviceTable, serviceKey),
) error {
	var key serviceKey
	var err error
	if key.from, key.to, err = query.ParseInterval(from, to); err != nil {
		return err
	}
	failure := a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		t, refused := a.table(c, s, key)
		if err = refused; err == nil {
			read(c, s, t, key)
		}
	})
	return cmp.Or(failure, err)
}

// ListServices implements contract.StrictServerInterface.
func (a *Services) ListServices(
	ctx context.Context, r contract.ListServicesRequestObject,
) (contract.ListServicesResponseObject, error) {
	q := &r.Params
	var t *serviceTable
	var list contract.ListServices200JSONResponse
	err := a.askServices(ctx, q.From, q.To, func(c *engine.View, s *epoch.Snapshot, table *serviceTable, _ serviceKey) {
		t = table
		list = contract.ListServices200JSONResponse{
			Items:    []contract.Service{},
			Epoch:    s.Epoch(),
			Learning: !s.Watching,
			States:   make(map[string]int),
			FewCalls: *t.fewCalls(c.Table),
		}
	})
	if err != nil {
		return nil, err
	}
	list.From, list.To, list.NowFrom = render.At(t.uses.From), render.At(t.uses.Now.To), render.At(t.uses.Now.From)
	list.BinNs = int(t.uses.Bin)
	sort := query.Value(q.Sort, contract.ListServicesParamsSortState)
	order := query.NewNameList()
	for i := range t.rows {
		list.States[string(t.rows[i].State)]++
		order.Add(serviceSortKey(&t.rows[i], sort), t.rows[i].Service, int32(i))
	}
	order.Sort()
	keep := func(i int32) bool {
		s := &t.rows[i]
		return query.Matches(s.Service, q.Q) && (q.State == nil || *q.State == s.State)
	}
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "services by "+string(sort)), keep)
	if err != nil {
		return nil, err
	}
	list.NextCursor, list.Total = next, order.Count(keep)
	directory := a.directory()
	for _, i := range items {
		x := t.rows[i]
		x.Owner = render.Owner(directory, x.Service)
		list.Items = append(list.Items, x)
	}
	return list, nil
}

// serviceSortKey returns the key that services are sorted by, ascending with NaN last.
func serviceSortKey(s *contract.Service, sort contract.ListServicesParamsSort) float64 {
	falling := func(x *float64) float64 { return -query.Value(x, math.NaN()) }
	switch sort {
	case contract.ListServicesParamsSortRate:
		return -s.Now.Rate
	case contract.ListServicesParamsSortFailed:
		return falling(s.Now.Failed)
	case contract.ListServicesParamsSortP50:
		return falling(s.Now.P50Ns)
	case contract.ListServicesParamsSortP99:
		return falling(s.Now.P99Ns)
	case contract.ListServicesParamsSortOwn:
		return falling(s.Now.OwnNs)
	case contract.ListServicesParamsSortName:
		return 0
	case contract.ListServicesParamsSortState:
	}
	return float64(slices.Index(urgency, s.State))
}

// GetService implements contract.StrictServerInterface.
func (a *Services) GetService(
	ctx context.Context, r contract.GetServiceRequestObject,
) (contract.GetServiceResponseObject, error) {
	var d *contract.GetService200JSONResponse
	q := &r.Params
	err := a.askServices(ctx, q.From, q.To, func(c *engine.View, s *epoch.Snapshot, t *serviceTable, _ serviceKey) {
		i := slices.IndexFunc(t.rows, func(x contract.Service) bool {
			return x.ID == r.Service || x.Service == r.Service
		})
		if i < 0 {
			return
		}
		service := t.uses.Services[i].Service
		key := serviceKey{t.uses.From, t.uses.Now.To}
		if t.live {
			key.to = s.Ended
		}
		d = newServiceTable(c, s, key, service).detail(c, i)
	})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, refusal.New(refusal.NotFound, "no such service in the last two hours", "/services lists them")
	}
	d.Service.Owner = render.Owner(a.directory(), d.Service.Service)
	return *d, nil
}

// detail returns the service at index i with its parts and neighbours.
func (t *serviceTable) detail(c *engine.View, i int) *contract.GetService200JSONResponse {
	x, names := &t.uses.Services[i], c.Table
	d := &contract.GetService200JSONResponse{
		Service:        t.rows[i],
		Operations:     []contract.ServiceOperation{},
		Inside:         []contract.ServiceSpans{},
		Instances:      []contract.ServiceInstance{},
		Callers:        []contract.ServiceCall{},
		Callees:        []contract.ServiceCall{},
		Deploys:        []contract.Deploy{},
		From:           render.At(t.uses.From),
		To:             render.At(t.uses.Now.To),
		NowFrom:        render.At(t.uses.Now.From),
		BinNs:          int(t.uses.Bin),
		MoreOperations: max(0, len(x.Operations)-shownServiceOperations),
	}
	for k := range x.Operations[:min(len(x.Operations), shownServiceOperations)] {
		o := &x.Operations[k]
		op := contract.ServiceOperation{
			Operation: names.OpName(o.Op), Kind: names.Operation(o.Op).Kind.String(), Trend: t.trend(o.Series),
		}
		latest, usual := c.Spans.Latest(o.Op), c.Spans.Usual(o.Op)
		op.Now, op.Usual = t.loads(&o.Use, &latest, &usual)
		op.Worse = worse(&op.Now, op.Usual, t.tail(&latest, &usual))
		op.State, op.Reason = stateOf(&op.Now, op.Usual, op.Worse, t.quiet(&o.Use))
		op.State, op.Reason = t.affectedState(o.Op, op.State, op.Reason)
		d.Operations = append(d.Operations, op)
	}
	d.Inside = t.inside(c, x)
	for _, y := range c.History.Instances.Uses(x.Service, t.uses.Now, t.uses.From) {
		d.Instances = append(d.Instances, contract.ServiceInstance{
			Key:       names.Text(y.Key),
			Value:     names.Text(y.Value),
			FirstSeen: render.At(y.First),
			LastSeen:  render.At(y.Last),
			Now:       loadOf(y.Now, t.uses.Now.To.Sub(t.uses.Now.From), &stats.Ranks{}),
		})
	}
	for k := range t.calls {
		switch call := t.calls[k]; d.Service.Service {
		case call.Caller:
			d.Callees = append(d.Callees, call)
		case call.Callee:
			d.Callers = append(d.Callers, call)
		}
	}
	sortCalls(d.Callers)
	sortCalls(d.Callees)
	for _, deploy := range slices.Backward(c.Deploys) {
		if deploy.Service == x.Service && len(d.Deploys) < shownDeploys {
			d.Deploys = append(d.Deploys, render.Deploy(names, deploy))
		}
	}
	return d
}

// inside returns the operations of a service that no other service calls, and the calls that it makes, most time first.
// The result is empty unless the table is live.
func (t *serviceTable) inside(c *engine.View, x *history.ServiceUse) []contract.ServiceSpans {
	all, total := []contract.ServiceSpans{}, make(map[string]float64) // ns by name
	if !t.live {
		return all
	}
	names, entries := c.Table, make(map[trace.Op]bool)
	for i := range x.Operations {
		entries[x.Operations[i].Op] = true
	}
	for op := range c.Spans.LatestOps() {
		o := names.Operation(op)
		if o.Service != x.Service || entries[op] || entries[names.Base(op)] {
			continue
		}
		latest, usual := c.Spans.Latest(op), c.Spans.Usual(op)
		s := contract.ServiceSpans{
			Operation: names.OpName(op), Name: names.OpName(op), Kind: o.Kind.String(), Spans: int64(latest.Count()),
			P50Ns: latest.Quantile(0.5), P99Ns: latest.Quantile(0.99),
		}
		if o.Target != 0 {
			s.Name += " → " + strings.TrimSpace(names.ServiceName(o.Target)+" "+names.OpName(o.Target))
		}
		if usual.Count() > 0 {
			s.UsualP50Ns, s.UsualP99Ns = new(usual.Quantile(0.5)), new(usual.Quantile(0.99))
		}
		all = append(all, s)
		total[s.Name] += latest.Sum()
	}
	slices.SortFunc(all, func(a, b contract.ServiceSpans) int {
		return cmp.Or(cmp.Compare(total[b.Name], total[a.Name]), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), shownInside)]
}

// sortCalls sorts by number of calls, most calls first.
func sortCalls(all []contract.ServiceCall) {
	slices.SortStableFunc(all, func(a, b contract.ServiceCall) int {
		return cmp.Or(cmp.Compare(b.Now.Calls, a.Now.Calls), strings.Compare(a.Caller, b.Caller),
			strings.Compare(a.Callee, b.Callee))
	})
}

// GetServiceMap implements contract.StrictServerInterface.
func (a *Services) GetServiceMap(
	ctx context.Context, r contract.GetServiceMapRequestObject,
) (contract.GetServiceMapResponseObject, error) {
	var d contract.GetServiceMap200JSONResponse
	var t *serviceTable
	err := a.askServices(ctx, nil, r.Params.To, func(_ *engine.View, s *epoch.Snapshot, x *serviceTable, _ serviceKey) {
		t = x
		d = contract.GetServiceMap200JSONResponse{
			Services: []contract.Service{},
			Epoch:    s.Epoch(),
			Learning: !s.Watching,
			NowFrom:  render.At(t.uses.Now.From),
			To:       render.At(t.uses.Now.To),
		}
	})
	if err != nil {
		return nil, err
	}
	directory, mapped := a.directory(), make(map[string]bool)
	for _, x := range t.rows {
		x.Trend, x.Owner = nil, render.Owner(directory, x.Service)
		d.Services = append(d.Services, x)
	}
	slices.SortStableFunc(d.Services, func(x, y contract.Service) int {
		return cmp.Or(cmp.Compare(y.Now.Calls, x.Now.Calls), strings.Compare(x.Service, y.Service))
	})
	d.Services = d.Services[:min(len(d.Services), mappedServices)]
	for i := range d.Services {
		mapped[d.Services[i].Service] = true
	}
	hidden := func(x contract.ServiceCall) bool { return !mapped[x.Caller] || !mapped[x.Callee] }
	d.Calls = slices.DeleteFunc(slices.Clone(t.calls), hidden)
	sortCalls(d.Calls)
	d.Calls = append([]contract.ServiceCall{}, d.Calls[:min(len(d.Calls), mappedCalls)]...)
	return d, nil
}
