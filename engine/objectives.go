package engine

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// watchObjectives applies the objectives and gates in the options.
func (c *Core) watchObjectives() {
	c.objectives.Set(c.options.Objectives)
	c.cases.tracker.SetGates(c.options.Gates)
}

// valid reports whether the objectives of s can be judged, and its gates are numbers.
func (s *Settings) valid() bool {
	for i := range s.Objectives {
		if !s.Objectives[i].Valid() {
			return false
		}
	}
	return finite(s.Gates.Growth, s.Gates.Failing, s.Gates.Score)
}

// observeObjectives takes a request for the objectives of its entry.
func (c *Core) observeObjectives(o *observation.Observation) {
	if !c.objectives.Watches(o.Entry) {
		return
	}
	r := &c.request
	*r = incident.Request{Entry: o.Entry, Ended: o.Start.Add(o.Duration), Duration: o.Duration, Failed: o.Failed, Steps: r.Steps[:0]}
	var passed map[trace.Context]bool // contexts that pass on a failure of a call
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
	c.objectives.Observe(r)
}

// Objectives returns the state of the objectives at the end of the last epoch, in the order of the configuration.
func (c *Core) Objectives() []incident.ObjectiveStatus { return c.objectives.Status() }

// burns returns the objectives that burn, with the services that their requests run through.
func (c *Core) burns(now trace.Nanos) []incident.Burn {
	burns := c.objectives.Step(now)
	for i := range burns {
		burns[i].Services = c.servicesOf(&burns[i].Missed)
	}
	return burns
}

// servicesOf returns the services in which the requests of an objective spend time, or for which they wait, ascending.
// While groups are learned, it is the service of the entry.
func (c *Core) servicesOf(m *incident.Missed) []trace.Symbol {
	services := map[trace.Symbol]bool{m.Service: true}
	add := func(step trace.Op) {
		for _, op := range []trace.Op{step, c.table.Target(step)} {
			if service := c.table.Operation(op).Service; op != 0 && service != 0 {
				services[service] = true
			}
		}
	}
	for g := range c.detector.Groups.Each() {
		if g.Level != group.LevelRequestType || !c.objectives.Matches(&m.Objective, g.Entry) {
			continue
		}
		for _, e := range g.Edges() {
			x := c.table.EdgeInfo(e)
			add(c.table.Context(x.Context).Op)
			add(x.Before)
			add(x.After)
		}
	}
	return slices.Sorted(maps.Keys(services))
}
