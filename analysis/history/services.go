package history

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Services numbers the services that sites name, and records which of them call each other.
type Services struct {
	numbers map[trace.Symbol]int32
	names   []trace.Symbol // by number; the first is unused
	sites   []int          // by number: number of sites; 0 for a service that emits no spans
	calls   map[servicePair]bool
}

// servicePair holds the numbers of a service and of a service that it calls.
type servicePair struct{ caller, called int32 }

func newServices() Services {
	return Services{
		numbers: make(map[trace.Symbol]int32),
		names:   make([]trace.Symbol, 1),
		sites:   make([]int, 1),
		calls:   make(map[servicePair]bool),
	}
}

// add returns the number, from 1, of the service called name, creating it if necessary.
func (v *Services) add(name trace.Symbol) int32 {
	if i, ok := v.numbers[name]; ok {
		return i
	}
	i := int32(len(v.names))
	v.numbers[name] = i
	v.names, v.sites = append(v.names, name), append(v.sites, 0)
	return i
}

// Len returns the number of services.
func (v *Services) Len() int { return len(v.names) - 1 }

// Names returns the names of the services by number, from 1.
func (v *Services) Names() []trace.Symbol { return v.names }

// Number returns the number of a service, or 0 if it is unknown.
func (v *Services) Number(service trace.Symbol) int32 { return v.numbers[service] }

// full reports whether a service has at least the given number of sites.
func (v *Services) full(service trace.Symbol, sites int) bool {
	return v.sites[v.numbers[service]] >= sites
}

// crowded reports whether any service has at least the given number of sites.
func (v *Services) crowded(sites int) bool { return slices.Max(v.sites) >= sites }

// Adjacent reports whether a calls b, or b calls a.
func (v *Services) Adjacent(a, b trace.Symbol) bool {
	i, k := v.numbers[a], v.numbers[b]
	return v.calls[servicePair{i, k}] || v.calls[servicePair{k, i}]
}

// Related reports whether services a and b are connected by calls, in either direction, directly or through other
// services.
func (v *Services) Related(a, b trace.Symbol) bool {
	component := make([]int32, len(v.names)) // by service: its parent in the tree of its component
	for i := range component {
		component[i] = int32(i)
	}
	find := func(i int32) int32 {
		for component[i] != i {
			component[i] = component[component[i]]
			i = component[i]
		}
		return i
	}
	for pair := range v.calls {
		component[find(pair.caller)] = find(pair.called)
	}
	return find(v.numbers[a]) == find(v.numbers[b])
}

// Callers returns the given services and all services that call them, directly or through others, in ascending order.
func (v *Services) Callers(services ...trace.Symbol) []trace.Symbol {
	callers := make(map[int32][]int32)
	for pair := range v.calls {
		callers[pair.called] = append(callers[pair.called], pair.caller)
	}
	found := make(map[trace.Symbol]bool)
	for len(services) > 0 {
		s := services[len(services)-1]
		services = services[: len(services)-1 : len(services)-1]
		if found[s] {
			continue
		}
		found[s] = true
		for _, caller := range callers[v.numbers[s]] {
			services = append(services, v.names[caller])
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// resolve maps the number of each service to itself, unless the service emits no spans and is named after the address
// of a service that does: cart.default.svc:7070 maps to cart. opaque marks the services without spans.
func (v *Services) resolve(table *trace.Table) (service []int32, opaque []bool) {
	service, opaque = make([]int32, len(v.names)), make([]bool, len(v.names))
	emits := func(name trace.Symbol) bool { return v.sites[v.numbers[name]] > 0 }
	for i, name := range v.names {
		service[i], opaque[i] = int32(i), v.sites[i] == 0
		if emitter := emitterOf(name, table, emits); opaque[i] && emitter != 0 {
			service[i] = v.numbers[emitter]
		}
	}
	return service, opaque
}

// emitterOf returns the service that emits spans under the given name, or under the host in that name if it is an
// address like cart.default.svc:7070. It returns 0 if there is no such service.
func emitterOf(name trace.Symbol, table *trace.Table, emits func(service trace.Symbol) bool) trace.Symbol {
	for _, name := range []trace.Symbol{name, table.HostOf(name)} {
		if emits(name) {
			return name
		}
	}
	return 0
}
