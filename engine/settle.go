package engine

import (
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// settle takes the behaviour of problems as normal that have been open for a day, unless they belong to an open
// incident: after a day a change that nobody was told of is neither a peak nor a nightly job. Whoever was told accepts
// the incident.
func (c *Core) settle(now trace.Nanos) {
	var open []analysis.Hash
	for _, x := range c.cases.tracker.Incidents() {
		if x.IsOpen() && c.cases.affected[x.ID] != nil {
			open = append(open, c.cases.affected[x.ID].Problems...)
		}
	}
	lasting := func(p *detect.Problem) bool { return now.Sub(p.Opened) >= incident.Day && !slices.Contains(open, p.ID) }
	for _, p := range c.acceptProblems(now, lasting) {
		c.log = append(c.log, fmt.Sprintf("%s %s has been open for a day: its behaviour is normal from now on", p.Kind, p.ID))
	}
}

// acceptProblems takes the behaviour of some changed problems as normal from an instant on, and returns them.
func (c *Core) acceptProblems(now trace.Nanos, which func(*detect.Problem) bool) (accepted []*detect.Problem) {
	for i := range c.problems {
		if p := &c.problems[i]; p.Onset == detect.Changed && which(p) && c.detector.Accept(p.Group, now) {
			accepted = append(accepted, p)
		}
	}
	return accepted
}
