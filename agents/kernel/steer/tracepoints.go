package steer

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Assumed cost of a hit, that is, of an event and its span, until the cost is measured.
const (
	hitNanos = 1500
	hitBytes = 350
)

// parseID returns the service and the class of a tracepoint. ok is false unless plans can enable the class.
func parseID(id string) (service string, c waits.Class, ok bool) {
	at := strings.LastIndex(id, waits.TracepointInfix)
	if at <= 0 {
		return "", 0, false
	}
	c, err := waits.ParseClass(id[at+len(waits.TracepointInfix):])
	return id[:at], c, err == nil && offered.Has(c)
}

// offered holds the classes that plans can enable: all classes except time on a CPU.
const offered = waits.All &^ (1 << waits.OnCPU)

// tracepointsOf returns the tracepoints of services, ascending by ID. The tracepoints have no owner, because a thread
// may wait anywhere.
func tracepointsOf(services []string) []protocol.Tracepoint {
	var list []protocol.Tracepoint
	for _, service := range services {
		for c := range waits.Class(waits.NumClasses) {
			if offered.Has(c) {
				list = append(list, protocol.Tracepoint{
					ID:        waits.TracepointID(service, c),
					Layer:     protocol.Kernel,
					Kind:      protocol.ProbePoint,
					Service:   service,
					Scope:     waits.Scope,
					Operation: waits.SpanName(c),
					SpanKind:  protocol.Internal,
					CostNanos: hitNanos,
					Bytes:     hitBytes,
				})
			}
		}
	}
	protocol.SortCatalogue(list)
	return list[:min(len(list), protocol.MaxCatalogue)]
}

// validService reports whether the tracepoints of a service can be announced.
func validService(name string) bool {
	const most = protocol.MaxText - len(waits.TracepointInfix) - len("preempted")
	return name != "" && protocol.Printable(name, most) == name
}

// enabled is an index of a plan for decisions about waits. It is immutable.
type enabled struct {
	plan    *protocol.Plan       // may be nil
	classes map[string]waits.Set // by service, of all arms
	arms    []map[string]rates   // by service
	unknown []string             // IDs that no kernel agent offers
}

// A gate reports whether the plan enables waits of class c for the request with trace ID trace. If it doesn't enable
// such waits, they must not be sent.
type gate func(c waits.Class, trace [16]byte) bool

// rates holds, by class, the share of an arm's requests that the class is enabled for.
type rates [waits.NumClasses]float64

// index returns the index of a plan.
func index(p *protocol.Plan) *enabled {
	e := &enabled{plan: p, classes: make(map[string]waits.Set)}
	if p == nil {
		return e
	}
	for i := range p.Arms {
		arm := make(map[string]rates)
		for _, t := range p.Arms[i].Tracepoints {
			service, c, ok := parseID(t.ID)
			if !ok {
				e.unknown = append(e.unknown, t.ID)
				continue
			}
			e.classes[service] = e.classes[service].With(c)
			r := arm[service]
			r[c] = t.Rate
			arm[service] = r
		}
		e.arms = append(e.arms, arm)
	}
	slices.Sort(e.unknown)
	e.unknown = slices.Compact(e.unknown)
	return e
}

// gate returns the gate of a service.
func (e *enabled) gate(service string) gate {
	return func(c waits.Class, trace [16]byte) bool {
		if e.plan == nil || !c.Valid() {
			return false
		}
		r := protocol.RandomnessOf(trace)
		arm := r.Arm(e.plan)
		return arm >= 0 && r.Passes(e.arms[arm][service][c])
	}
}
