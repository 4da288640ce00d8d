package services

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Lengths of the windows for services.
const (
	nowWindow   = 10 * time.Minute // calls in this window count as current
	trendLength = time.Hour        // default length of the time span
	trendBins   = 60
	leastUsual  = 5 * time.Minute // minimum length of the history to compare with
)

// serviceKey identifies a table of services within a snapshot by its time span and the start of the calls that count as
// current. If now is 0, these are the calls of the last nowWindow.
type serviceKey struct{ from, to, now trace.Nanos }

// serviceTable holds the usage of all services in a time span.
type serviceTable struct {
	uses  history.Uses
	rows  []contract.Service // in the order of uses.Services; without owners
	calls []contract.ServiceCall
	live  bool        // it ends with the last epoch
	onset trace.Nanos // or end of the incident at which the current calls start; 0: nowWindow
	// Request types that open incidents affect, by entry operation, most added latency first. It is nil if the table
	// isn't live.
	affected map[trace.Op][]contract.IncidentRequestType
}

// newServiceTable returns the table of services for key. It includes series for the operations of the service
// `detailed`, unless that is 0.
func newServiceTable(c *engine.View, s *epoch.Snapshot, key serviceKey, detailed trace.Symbol) *serviceTable {
	h := c.History
	now := history.Interval{From: max(key.to.Add(-nowWindow), h.Requests.Since(), key.now), To: key.to}
	t := &serviceTable{uses: h.Uses(now, key.from, trendBins, detailed), live: key.to == s.Ended, onset: key.now}
	if t.live {
		t.affected = affectedEntries(s, c)
	}
	deploys, incidents := latestDeploys(c, key.to), suspectedServices(s)
	for i := range t.uses.Services {
		t.rows = append(t.rows, t.service(c, &t.uses.Services[i], deploys, incidents))
	}
	if t.live && key.now == 0 {
		t.startAtOnsets(c, s, key)
	}
	for i := range t.uses.Calls {
		t.calls = append(t.calls, t.call(c.Table, &t.uses.Calls[i]))
	}
	if t.live {
		t.noteCalls(c)
	}
	return t
}

// startAtOnsets replaces the rows of services whose incident began within the last nowWindow. Otherwise, their figures
// would mix the time before the onset with the time since. If requests have been back to normal for a part of that
// window, it also replaces the rows of services that look unwell, because they have recovered.
func (t *serviceTable) startAtOnsets(c *engine.View, s *epoch.Snapshot, key serviceKey) {
	since := make(map[trace.Nanos]*serviceTable)
	recovered := recovery(s, key.to)
	for i := range t.rows {
		onset := t.startOf(s, &t.rows[i], recovered)
		if onset == 0 {
			continue
		}
		if since[onset] == nil {
			since[onset] = newServiceTable(c, s, serviceKey{key.from, key.to, onset}, 0)
		}
		rows := since[onset].rows
		k := slices.IndexFunc(rows, func(x contract.Service) bool { return x.ID == t.rows[i].ID })
		if k >= 0 {
			t.rows[i] = rows[k]
		}
	}
}

// startOf returns the start of the current calls of a service: the onset of its incident or, if it isn't well and has
// no incident, recovered, the time when requests were back to normal. It returns 0 for nowWindow.
func (t *serviceTable) startOf(s *epoch.Snapshot, row *contract.Service, recovered trace.Nanos) trace.Nanos {
	if len(row.Incidents) > 0 {
		return onsetOf(s, row.Incidents, t.uses.Now.To)
	}
	if row.State == contract.ServiceStateFailing || row.State == contract.ServiceStateSlower {
		return recovered
	}
	return 0
}

// recovery returns the latest time in the nowWindow before `to` when the evidence for an incident ended because
// requests were back to normal, or 0 if there is none.
func recovery(s *epoch.Snapshot, to trace.Nanos) (latest trace.Nanos) {
	for i := range s.Incidents {
		x := &s.Incidents[i]
		if x.End == nil || x.End.Reason != contract.IncidentEndReasonRecovered || x.Ended == nil {
			continue
		}
		if at := trace.Nanos(x.Ended.UnixNano()); at > to.Add(-nowWindow) && at < to {
			latest = max(latest, at)
		}
	}
	return latest
}

// onsetOf returns the latest onset among the given incidents in the nowWindow before `to`, or 0 if there is no such
// onset.
func onsetOf(s *epoch.Snapshot, incidents []contract.ServiceIncident, to trace.Nanos) (latest trace.Nanos) {
	for _, of := range incidents {
		i := slices.IndexFunc(s.Incidents, func(x epoch.IncidentRow) bool { return x.ID == of.ID })
		if i < 0 {
			continue
		}
		if onset := trace.Nanos(s.Incidents[i].Onset.UnixNano()); onset > to.Add(-nowWindow) && onset < to {
			latest = max(latest, onset)
		}
	}
	return latest
}

// noteCalls sets ChangedCalls in the rows of services whose calls have changed.
func (t *serviceTable) noteCalls(c *engine.View) {
	for _, changed := range c.Incidents.ChangedCalls() {
		i := slices.IndexFunc(t.uses.Services, func(x history.ServiceUse) bool { return x.Service == changed.Service })
		if i >= 0 {
			t.rows[i].ChangedCalls = changedCalls(c.Table, changed, c.Annotations)
		}
	}
}

// deployedWith is the maximum time between a deploy and a change of calls that is attributed to the deploy.
const deployedWith = 2 * time.Minute

// changedCalls converts changed calls to the type of the contract, with the deploy that they are attributed to. all
// contains all annotations, oldest first.
func changedCalls(names *trace.Table, changed incident.ChangedCalls, all []engine.Annotation) *contract.ChangedCalls {
	x := &contract.ChangedCalls{Since: render.At(changed.Since), Per100Requests: 100 * changed.Share}
	x.Text = "makes " + units.Plural(max(1, int(math.Round(x.Per100Requests))), "other call") + " per 100 requests"
	for _, d := range slices.Backward(all) {
		if d.Service == changed.Service && d.Version != 0 && d.At.Sub(changed.Since).Abs() <= deployedWith {
			x.Version = new(names.Text(d.Version))
			x.Text += ", as " + *x.Version + " was deployed"
			break
		}
	}
	return x
}

// latestDeploys returns each service's latest deploy that is earlier than `before`.
func latestDeploys(c *engine.View, before trace.Nanos) map[trace.Symbol]contract.Annotation {
	latest := make(map[trace.Symbol]contract.Annotation)
	for i := range c.Annotations { // oldest first
		if d := &c.Annotations[i]; d.Version != 0 && d.At < before {
			latest[d.Service] = render.Annotation(c.Table, d)
		}
	}
	return latest
}

// suspectedServices returns, by service name, the open incidents with that service as a suspect.
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
// adds latency, it returns each suspect's share of the total score.
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

func (t *serviceTable) service(c *engine.View, x *history.ServiceUse, deploys map[trace.Symbol]contract.Annotation,
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
	t.addPercentiles(s.Trend, &c.History.Durations, x.Service)
	if t.onset != 0 {
		s.NowFrom = new(render.At(t.onset))
	}
	var latest, usual stats.Ranks
	for i := range x.Operations {
		a, b := c.Spans.Latest(x.Operations[i].Op, t.onset), c.Spans.Usual(x.Operations[i].Op)
		latest.Merge(&a)
		usual.Merge(&b)
	}
	s.Now, s.Usual = t.loads(&x.Use, &latest, &usual)
	s.Worse = t.without(c, x, worse(&s.Now, s.Usual, t.tail(&latest, &usual)))
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

// countInstances sets the fields of s for the number of instances and the versions that currently have calls.
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

// loads returns the current and the usual load; usual is nil if it is unknown. latest and `before` are the current and
// the usual durations of the spans; both are ignored unless the table is live.
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
	if n := spans.Count(); n > 0 {
		x.MeanNs = new(spans.Sum() / float64(n))
		x.P50Ns, x.P99Ns = new(spans.Quantile(0.5)), new(spans.Quantile(0.99))
	}
	return x
}

// trend converts a series to the type of the contract, or returns nil for nil. It omits the last bin if that isn't
// over, because an incomplete bin would look like a change.
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

// addPercentiles sets the percentiles of a service's spans in x, unless x is nil. Each bin gets the percentiles of the
// two-minute tick that contains its middle.
func (t *serviceTable) addPercentiles(x *contract.ServiceTrend, d *history.Durations, service trace.Symbol) {
	if x == nil {
		return
	}
	p50, p99 := make([]*float64, len(x.Rate)), make([]*float64, len(x.Rate))
	for i := range x.Rate {
		middle := t.uses.From.Add(time.Duration(i)*t.uses.Bin + t.uses.Bin/2)
		if p, known := d.At(service, middle); known {
			p50[i], p99[i] = &p.Median, &p.P99
		}
	}
	x.P50Ns, x.P99Ns = &p50, &p99
}

func (t *serviceTable) call(names *trace.Table, x *history.CallUse) contract.ServiceCall {
	c := contract.ServiceCall{Caller: names.Text(x.Caller), Callee: names.Text(x.Callee)}
	c.Now, c.Usual = t.loads(&x.Use, &stats.Ranks{}, &stats.Ranks{})
	return c
}
