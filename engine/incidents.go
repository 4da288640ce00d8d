package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident with what groups and problems show of it.
type Incident struct {
	incident.Incident
	Types    []AffectedType  // by falling added latency, at most maxAffected
	Share    float64         // of all requests since the onset, of Types; 0: unknown
	Problems []analysis.Hash // in the order in which they joined, at most maxAffected
	Place    Place
	// Milestones are the facts in its course, in the order in which they became known.
	Milestones []Milestone
	// AlertedSeverity is the severity at the time when it opened, or opened again: alerts about it keep it.
	AlertedSeverity Severity
}

// deployLead is the time before the onset of an incident from which deploys of its suspects may be its cause.
const deployLead = 30 * time.Minute

// Deploys returns those of the suspects of x, among some deploys, that happened from half an hour before its onset
// until its end, in their order.
func (x *Incident) Deploys(all []Deploy) []Deploy {
	var found []Deploy
	for _, d := range all {
		if d.At >= x.Onset.Add(-deployLead) && (x.IsOpen() || d.At <= x.Closed()) &&
			slices.ContainsFunc(x.Shown(), func(s compare.Suspect) bool { return s.Service == d.Service }) {
			found = append(found, d)
		}
	}
	return found
}

// SuspectDeploy returns the latest of x.Deploys of the first suspect that may have caused x; zero if there is none. One
// after the opening is not the cause but perhaps the remedy.
func (x *Incident) SuspectDeploy(all []Deploy) Deploy {
	for _, d := range slices.Backward(x.Deploys(all)) {
		if d.Service == x.Suspects[0].Service && d.At <= x.LastOpened() {
			return d
		}
	}
	return Deploy{}
}

// AffectedType is a request type that is slower, or fails more often, since the onset of an incident, and that runs
// through its first suspect.
type AffectedType struct {
	RequestType         analysis.Hash
	Entry               trace.Op
	Requests            uint64        // since the onset, until requests were as usual again or now
	Span                time.Duration // in which these arrived; 0: of an earlier version, which did not keep it
	Mean, Usual         float64       // ns, of these requests and in healthy times before the onset
	P50, UsualP50       float64       // the same of the median, within a tenth; 0: unknown
	P99, UsualP99       float64
	Failed, UsualFailed float64 // share of these requests, and in healthy times before the onset
}

// lost returns what x loses since the onset: time, and the usual time of failed requests, in ns.
func (x *AffectedType) lost() float64 {
	return float64(x.Requests) * (max(0, x.Mean-x.Usual) + max(0, x.Failed-x.UsualFailed)*x.Usual)
}

// Fails reports whether x loses more by failures than by time.
func (x *AffectedType) Fails() bool { return (x.Failed-x.UsualFailed)*x.Usual > max(0, x.Mean-x.Usual) }

// Rules by which an affected type is as usual again.
const (
	leastLeft = 0.25 // of the former loss of a request, in the requests since then
	leastMore = 1.25 // times the former loss, with which it goes on at a lower level
)

// goesOn reports whether the requests of x that came after those of before still lose time. Healthy requests after the
// end do not dilute the size of an incident.
func (x *AffectedType) goesOn(before *AffectedType) bool {
	added, lost := float64(x.Requests-min(x.Requests, before.Requests)), x.lost()-before.lost()
	return lost > 0 &&
		(lost*float64(before.Requests) >= leastLeft*added*before.lost() || x.lost() >= leastMore*before.lost())
}

// maxAffected bounds the request types, and the problems, of an incident.
const maxAffected = 100

// Incidents returns the open incidents and the remembered closed ones, in the order in which they were opened. The
// result is valid until the next epoch.
func (c *Core) Incidents() []Incident { return c.cases.all() }

// ChangedCalls returns the services that have made other calls for some minutes, ascending, see
// [incident.ChangedCalls].
func (c *Core) ChangedCalls() []incident.ChangedCalls { return c.cases.tracker.ChangedCalls() }

// accept accepts the behaviour since the onset of an open incident, and of its problems, as normal: see
// [incident.Tracker.Accept].
func (c *Core) accept(id uint64, by, text string) bool {
	accepted := c.cases.tracker.Accept(id, by, text)
	if accepted {
		if a := c.cases.affected[id]; a != nil {
			c.acceptProblems(c.Ended(), func(p *detect.Problem) bool { return slices.Contains(a.Problems, p.ID) })
		}
		for _, x := range c.cases.tracker.Incidents() {
			if x.ID == id {
				c.objectives.Waive(x.Objectives)
			}
		}
		entry := fmt.Sprintf("accepts the behaviour since the onset of incident %016x as normal", id)
		if text != "" {
			entry += ": " + text
		}
		c.log.add(by, entry)
	}
	return accepted
}

// Watching reports whether incidents are reported: the history of calls is long enough.
func (c *Core) Watching() bool { return incident.Ready(c.Ended(), c.sites.Sites) }

// WatchingLeft returns how long requests must go on until incidents are reported; 0 if they are.
func (c *Core) WatchingLeft() time.Duration { return incident.Left(c.Ended(), c.sites.Sites) }

// Silent reports whether requests have been missing for so long that an incident would close.
func (c *Core) Silent() bool { return incident.Silent(c.Ended(), c.sites.Sites) }

// Sites returns the number of sites from whose calls incidents are raised, and the number of calls at sites for which
// there was no room.
func (c *Core) Sites() (n int, refused uint64) { return c.sites.Len(), c.sites.Refused() }

// History returns the history of calls from which incidents are raised, for reading.
func (c *Core) History() *history.Sites { return c.sites.Sites }

// IncidentWith returns the open incident that contains a problem, the oldest of several.
func (c *Core) IncidentWith(problem analysis.Hash) (id uint64, ok bool) { return c.cases.with(problem) }
