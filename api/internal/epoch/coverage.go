package epoch

import (
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/trace"
)

// coveredServices limits the number of services in the status, because every page reads it. /metrics contains all
// services.
const coveredServices = 200

// coverageOf converts the recent coverage c to its form in the status. seen is the coverage since the start: services
// with spans in seen aren't listed as hops without spans.
func coverageOf(names *describe.Names, c, seen *trace.Coverage) contract.Coverage {
	total := c.Total()
	d := contract.Coverage{
		Received:           partOf(total.Received()),
		Requests:           partOf(total.Requests),
		RequestsOfTheirOwn: partOf(total.Own),
		LeftOut:            leftOut(&total),
		Long:               contract.LongSpans(partOf(total.Long)),
		Traces:             c.Traces,
		Incomplete:         c.Incomplete,
	}
	d.ShareOfSpans, d.ShareOfTime = total.Shares()
	d.Warning, d.Remedy = describe.Uncovered(names, c)
	d.Services = make([]contract.CoverageService, 0)
	for service, a := range c.Services() {
		if len(d.Services) == coveredServices {
			break
		}
		d.Services = append(d.Services, contract.CoverageService{
			Service:            names.Text(service),
			Received:           partOf(a.Received()),
			Requests:           partOf(a.Requests),
			RequestsOfTheirOwn: partOf(a.Own),
			LeftOut:            leftOut(a),
			Long:               contract.LongSpans(partOf(a.Long)),
		})
	}
	d.HopsWithoutSpans = make([]contract.HopWithoutSpans, 0)
	for h, x := range c.Hops(names.Table, seen) {
		d.HopsWithoutSpans = append(d.HopsWithoutSpans, contract.HopWithoutSpans{
			Caller:   names.Text(h.Caller),
			Callee:   names.Text(h.Callee),
			Hop:      names.Service(x.Peer),
			Requests: x.Requests,
		})
	}
	return d
}

func partOf(p trace.Part) contract.CoveredSpans {
	return contract.CoveredSpans{Spans: p.Spans, Ns: p.Nanos}
}

func leftOut(a *trace.Accounts) contract.SpansLeftOut {
	left := make(contract.SpansLeftOut, len(a.Left))
	for reason, p := range a.Left {
		left[string(reason)] = partOf(p)
	}
	return left
}

// serviceOutcome is the key for counting spans by service name and outcome.
type serviceOutcome struct{ Service, Outcome string }

// outcomesOf returns the number and the total duration of spans in c, by service name and outcome.
func outcomesOf(table *trace.Table, c *trace.Coverage) map[serviceOutcome]trace.Part {
	all := make(map[serviceOutcome]trace.Part)
	add := func(service, outcome string, p trace.Part) {
		if p.Spans > 0 {
			x := all[serviceOutcome{service, outcome}] // services whose names were forgotten share one entry
			all[serviceOutcome{service, outcome}] = trace.Part{Spans: x.Spans + p.Spans, Nanos: x.Nanos + p.Nanos}
		}
	}
	for service, a := range c.Services() {
		name := table.Text(service)
		add(name, "request", a.Requests)
		add(name, "own_request", a.Own)
		for reason, p := range a.Left {
			add(name, string(reason), p)
		}
	}
	return all
}

// identifying lists the operations whose names seem to contain IDs.
type identifying struct {
	entries int // size of the table when we last looked
	Found   contract.NamesWithIdentities
}

// shownNames limits the number of operations in the status whose names seem to contain IDs.
const shownNames = 100

// addNames looks for operation names that contain IDs if table has new entries since last, the previous snapshot.
// Otherwise, it copies the result from last.
func (s *Snapshot) addNames(table *trace.Table, last *Snapshot) {
	if last != nil && last.Identifying.entries == table.Len() {
		s.Identifying = last.Identifying
		return
	}
	names, all := describe.New(table, describe.Verbatim), table.Families()
	s.Identifying.entries = table.Len()
	x := &s.Identifying.Found
	x.Warning, x.Remedy = describe.Families(names, all)
	for i := range all[:min(shownNames, len(all))] {
		x.Operations = append(x.Operations, contract.NamedOperation{
			Service: table.Text(all[i].Service),
			Name:    all[i].Name,
			Names:   all[i].Names,
		})
	}
	if x.Operations == nil {
		x.Operations = []contract.NamedOperation{}
	}
}
