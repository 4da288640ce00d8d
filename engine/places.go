package engine

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// passes reports whether requests of g spend time in service or wait for it.
func passes(table *trace.Table, g *group.Group, service trace.Symbol) bool {
	for _, e := range g.Edges() {
		if touches(table, table.EdgeInfo(e), service) {
			return true
		}
	}
	return false
}

// touches reports whether e is time spent in service or waiting for it.
func touches(table *trace.Table, e trace.EdgeInfo, service trace.Symbol) bool {
	places := placesOf(table, e)
	return slices.Contains(places[:], service)
}

// placesOf returns the services that the steps of e run in or call. Unused elements are 0.
func placesOf(table *trace.Table, e trace.EdgeInfo) (places [6]trace.Symbol) {
	for i, step := range [...]trace.Op{table.Context(e.Context).Op, e.Before, e.After} {
		places[2*i], places[2*i+1] = servicesAt(table, step)
	}
	return places
}

// servicesAt returns the service that step runs in and the service that it calls. Either may be 0.
func servicesAt(table *trace.Table, step trace.Op) (runs, called trace.Symbol) {
	if step == 0 {
		return 0, 0
	}
	o := table.Operation(step)
	if o.Target != 0 {
		called = table.Operation(o.Target).Service
	}
	return o.Service, called
}

// concerns reports whether step runs in service or calls it.
func concerns(table *trace.Table, step trace.Op, service trace.Symbol) bool {
	runs, called := servicesAt(table, step)
	return service != 0 && (runs == service || called == service)
}
