package operating

import (
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/internal/metric"
)

// agents emits the metrics of agents.
func (m *metrics) agents(e metric.Emitter) {
	if m.handlers.options.Agents == nil {
		return
	}
	s, n := m.handlers.options.Agents.Summary(), m.handlers.options.Agents.Counts()
	for _, x := range []struct {
		state control.State
		n     int
	}{{control.Current, s.Current}, {control.Behind, s.Behind}, {control.Lost, s.Lost}} {
		e.Gauge("agents", "Agents, by whether they applied the current plan.", float64(x.n), "state", string(x.state))
	}
	e.Gauge("agent_polls", "Agents waiting for a plan.", float64(s.Polls))
	e.Gauge("agent_catalogues", "Different catalogues of agents.", float64(s.Catalogues))
	e.Gauge("agent_tracepoints", "Tracepoints of different catalogues.", float64(s.Tracepoints))
	e.Counter("agent_registrations_total", "Accepted registrations of agents.", n.Registered.Load())
	e.Counter("agent_plans_total", "Plans sent to agents.", n.Plans.Load())
	e.Counter("agent_statuses_total", "Accepted statuses of agents.", n.Statuses.Load())
	e.Counter("agent_refused_total", "Refused requests of agents.", n.Refused.Load())
	e.Counter("agent_tracepoints_refused_total",
		"Requests of agents refused because of the limit on tracepoints.", n.NoRoom.Load())
	e.Counter("agent_conflicts_total", "Messages of agents that used the ID of another agent.", n.Conflicts.Load())
	e.Counter("agent_expired_total", "Agents removed after a long silence.", n.Expired.Load())
	e.Counter("agent_displaced_total", "Agents removed to make room for agents with other tokens.", n.Displaced.Load())
}
