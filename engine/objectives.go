package engine

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// objectives judges requests against the configured objectives.
type objectives struct {
	*incident.Objectives
	table   *trace.Table
	request incident.Request // scratch
}

// valid reports whether the objectives of s are valid and its gates are finite.
func (s *Settings) valid() bool {
	for i := range s.Objectives {
		if !s.Objectives[i].Valid() {
			return false
		}
	}
	return finite(s.Gates.Growth, s.Gates.Failing, s.Gates.Score)
}

// observe counts o towards the objectives of its entry.
func (j *objectives) observe(o *observation.Observation) {
	if !j.Watches(o.Entry) {
		return
	}
	r := &j.request
	*r = incident.Request{
		Entry:    o.Entry,
		Ended:    o.Start.Add(o.Duration),
		Duration: o.Duration,
		Failed:   o.Failed,
		Steps:    r.Steps[:0],
	}
	var passed map[trace.Context]bool // contexts that propagate the failure of a call
	for i := range o.Contexts {
		if x := &o.Contexts[i]; x.Errors > 0 {
			if passed == nil {
				passed = make(map[trace.Context]bool)
			}
			passed[x.Parent] = true
		}
	}
	for i := range o.Contexts {
		x := &o.Contexts[i]
		if x.Tracepoint != 0 || x.Exclusive == 0 && x.Errors == 0 {
			continue
		}
		failed := x.Errors > 0 && !passed[x.Context]
		r.Steps = append(r.Steps, incident.Step{Op: x.Step(), Nanos: x.Exclusive, Failed: failed})
	}
	j.Observe(r)
}

// burns returns the objectives whose error budgets are burning, with the services that their requests run through.
func (j *objectives) burns(now trace.Nanos, groups *group.Grouper) []incident.Burn {
	burns := j.Step(now)
	for i := range burns {
		burns[i].Services = j.servicesOf(&burns[i].Missed, groups)
	}
	return burns
}

// servicesOf returns the services that requests matching m's objective spend time in or wait for, ascending. During the
// learning period it returns only the service of the entry.
func (j *objectives) servicesOf(m *incident.Missed, groups *group.Grouper) []trace.Symbol {
	services := map[trace.Symbol]bool{m.Service: true}
	add := func(step trace.Op) {
		for _, op := range []trace.Op{step, j.table.Target(step)} {
			if service := j.table.Operation(op).Service; op != 0 && service != 0 {
				services[service] = true
			}
		}
	}
	for g := range groups.Each() {
		if g.Level != group.LevelRequestType || !j.Matches(&m.Objective, g.Entry) {
			continue
		}
		for _, e := range g.Edges() {
			x := j.table.EdgeInfo(e)
			add(j.table.Context(x.Context).Op)
			add(x.Before)
			add(x.After)
		}
	}
	return slices.Sorted(maps.Keys(services))
}
