package engine

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Searches holds the state of the search for the places of incidents and the causes of problems, with the statistics
// about open incidents that the search needs.
type Searches struct {
	table     *trace.Table
	trees     *Trees
	plans     *plans
	problems  *Problems
	incidents *Incidents
	strategy  search.Strategy
	state     search.State
	list      []*incidentSearch       // in the order their incidents were opened
	inside    observation.Observation // scratch
}

// Plan returns the current plan.
func (r *Searches) Plan() *search.Plan { return &r.state.Plan }

// Sampling returns the services whose agents should sample the stacks of slow requests, in any order.
func (r *Searches) Sampling() []string {
	var names []string
	for _, service := range r.state.Sampling {
		names = append(names, r.table.Text(service))
	}
	return names
}

// State returns the state of the search.
func (r *Searches) State() *search.State { return &r.state }

// Investigation returns the investigation of subject, or nil if there is none. For an incident without an investigation
// of its own, it returns the investigation that located the cause of one of the incident's problems, if there is one.
func (r *Searches) Investigation(subject search.Subject) *search.Investigation {
	id, ofIncident := subject.Incident()
	if v := r.state.Investigation(subject); v != nil || !ofIncident {
		return v
	}
	s := r.of(id)
	if s == nil {
		return nil
	}
	if a := r.incidents.affected[id]; a != nil && a.Place.Operation != 0 {
		if v := r.state.Investigation(a.Place.Of); v.Answer() == a.Place.Operation {
			return v
		}
	}
	return r.located(s)
}

// Searched returns the problem that the search saw for subject in the last epoch, or nil if subject is neither a
// searched incident nor an open problem.
func (r *Searches) Searched(subject search.Subject) *detect.Problem {
	for _, s := range r.list {
		if s.subject() == subject {
			return &s.problem
		}
	}
	for i := range r.problems.open {
		if search.OfProblem(r.problems.open[i].ID) == subject {
			return &r.problems.open[i]
		}
	}
	return nil
}

// Tree returns the tree used to search the incident, or nil if it isn't searched. Its contexts start at operations of
// the first suspect.
func (r *Searches) Tree(incident uint64) *cct.Tree {
	if s := r.of(incident); s != nil {
		return s.tree
	}
	return nil
}

// Entries returns the entry operations of the requests under active investigation, oldest investigation first. The
// result may contain duplicates.
func (r *Searches) Entries(groups *group.Grouper) []trace.Op {
	var entries []trace.Op
	for i := range r.state.Investigations {
		v := &r.state.Investigations[i]
		id, ofIncident := v.Subject.Incident()
		switch {
		case !v.Status.Active():
		case !ofIncident:
			entries = append(entries, v.Entry)
		case r.incidents.affected[id] != nil:
			for _, t := range r.incidents.affected[id].Types {
				if g := groups.Group(t.RequestType); g != nil {
					entries = append(entries, g.Entry)
				}
			}
		}
	}
	return entries
}

// of returns the search of the incident with the given id, or nil if it isn't searched.
func (r *Searches) of(id uint64) *incidentSearch {
	for _, s := range r.list {
		if s.incident == id {
			return s
		}
	}
	return nil
}

// maxSearched is the maximum number of incidents that are searched at the same time.
const maxSearched = 16

// follow starts and ends the searches of incidents, and updates their problems and trees.
func (r *Searches) follow(now trace.Nanos, tracked []incident.Incident, groups *group.Grouper) {
	before := make(map[uint64]*incidentSearch, len(r.list))
	for _, s := range r.list {
		before[s.incident] = s
	}
	r.list = nil
	for i := range tracked {
		x := &tracked[i]
		s := before[x.ID]
		if !x.IsOpen() || len(r.list) == maxSearched || !searchable(&x.Suspects[0], s != nil) {
			continue
		}
		if s == nil || s.service != x.Suspects[0].Service {
			s = newIncidentSearch(x, now)
		}
		s.onset = x.Onset
		if callers := mayBeCallers(&x.Suspects[0]); callers != s.callers {
			s.callers = callers
			clear(s.scanned)
		}
		r.list = append(r.list, s)
		s.addOperations(groups, r.table)
		s.problem, s.tree = s.problemAt(now, groups, r.table), r.trees.inside(s.types(), s.operations)
		s.attach(&s.problem, r.plans.currentSets())
	}
}

// observe adds o to every search with an operation that o ran.
func (r *Searches) observe(requestType analysis.Hash, o *observation.Observation) {
	for _, s := range r.list {
		if o.Inside(s.operations, &r.inside) {
			s.observe(requestType, &r.inside)
			s.add(&r.inside, r.plans.arm(o), r.plans, false)
		}
	}
}

// subjects returns the problems that the search sees: incidents first, then problems outside of incidents.
//
// Problems in taken aren't searched separately. A problem of an incident is taken because the incident's own search
// covers it, unless the problem's cause is already located. An incident isn't searched if the search of one of its
// problems has located a cause in the first suspect. If the place of an open incident is located, all problems without
// a located cause are taken, too: somebody is working on the incident, and other slowdowns are probably its
// consequences or can wait.
//
// Failures and changed call flows are searched only once the requests are slower as well, because only added latency
// can be located.
//
// Subjects that people want searched come first, regardless of these rules.
func (r *Searches) subjects() (problems []search.Problem, taken map[search.Subject]bool) {
	taken = make(map[search.Subject]bool)
	located := r.hasLocated()
	for _, s := range r.list {
		if r.state.Wanted(s.subject()) || r.state.Investigation(s.subject()) != nil || r.located(s) == nil {
			problems = append(problems, search.Problem{Problem: &s.problem, Subject: s.subject(), Tree: s.tree})
		}
		for _, id := range r.incidents.affected[s.incident].Problems {
			p := search.OfProblem(id)
			taken[p] = taken[p] || r.state.Investigation(p).Answer() == 0 && !r.state.Wanted(p)
		}
	}
	for i := range r.problems.open {
		p := search.ProblemOf(&r.problems.open[i])
		v, wanted := r.state.Investigation(p.Subject), r.state.Wanted(p.Subject)
		if located && v.Answer() == 0 && !wanted {
			taken[p.Subject] = true
		}
		if taken[p.Subject] || p.Kind == detect.KindShifted && !p.Slower() && v == nil && !wanted {
			continue
		}
		if r.strategy.UsesPairs {
			p.Pairs = r.problems.refinements[p.Group].pairs.Shares()
		}
		problems = append(problems, p)
	}
	sorting.SliceStable(problems, func(a, b search.Problem) int {
		return trace.CompareBools(r.state.Wanted(b.Subject), r.state.Wanted(a.Subject))
	})
	return problems, taken
}

// hasLocated reports whether the place of any searched incident has been located.
func (r *Searches) hasLocated() bool {
	for _, s := range r.list {
		if a := r.incidents.affected[s.incident]; a != nil && a.Place.Operation != 0 {
			return true
		}
	}
	return false
}

// located returns the first investigation of one of the incident's problems that located a cause in the first suspect,
// or nil if there is none. It prefers slow problems to variable ones. It ignores problems that are chronic or older
// than the incident, because they have another cause. It also ignores problems of request types with less than half of
// the loss, because they may differ from the rest, unless the incident's place came from them.
func (r *Searches) located(s *incidentSearch) (found *search.Investigation) {
	a := r.incidents.affected[s.incident]
	for i := range r.problems.open {
		p := &r.problems.open[i]
		if p.Onset != detect.Changed || p.Opened < s.onset || !slices.Contains(a.Problems, p.ID) ||
			search.OfProblem(p.ID) != a.Place.Of && !a.mostly(p.RequestType) {
			continue
		}
		v := r.state.Investigation(search.OfProblem(p.ID))
		op := v.Answer()
		if op == 0 || !s.mayLocate(op, r.table) || found != nil && p.Kind == detect.KindVariable {
			continue
		}
		if found = v; p.Kind != detect.KindVariable {
			break
		}
	}
	return found
}

// builtTrees returns up-to-date trees of the request types with a problem or a searched incident. With a budget, it
// also returns trees of other types, as far as there is room, because a tracepoint costs something in every type that
// runs it. Those trees may be stale.
func (r *Searches) builtTrees(budget search.Budget) map[analysis.Hash]*cct.Tree {
	trees := make(map[analysis.Hash]*cct.Tree)
	add := func(id analysis.Hash) {
		if t := r.trees.Of(id); t != nil {
			trees[id] = t
		}
	}
	for i := range r.problems.open {
		add(r.problems.open[i].RequestType)
	}
	for _, s := range r.list {
		for _, id := range s.types() {
			add(id)
		}
	}
	if budget != (search.Budget{}) {
		r.trees.addOthers(trees)
	}
	return trees
}

// armTimes returns the request durations of every subject by arm of the current plan, or nil if the plan has no arms.
// The search uses them to estimate the overhead of tracepoints.
func (r *Searches) armTimes() []search.ArmTimes {
	arms := r.plans.current()
	if len(arms) == 0 {
		return nil
	}
	times := r.problems.armTimes(arms)
	for _, s := range r.list {
		times = append(times, s.armTimes(s.subject(), arms)...)
	}
	return times
}

// override adds o, replacing an earlier override of the same tracepoint. It returns false if there are [MostOverrides]
// others.
func (r *Searches) override(o search.Override) bool {
	r.withdraw(o.Tracepoint)
	if len(r.state.Overrides) >= MostOverrides {
		return false
	}
	r.state.Overrides = append(r.state.Overrides, o)
	return true
}

// withdraw deletes the override of tracepoint, and reports whether there was one.
func (r *Searches) withdraw(tracepoint trace.Symbol) bool {
	var left []search.Override // a new slice because the state owns the old one
	for _, o := range r.state.Overrides {
		if o.Tracepoint != tracepoint {
			left = append(left, o)
		}
	}
	withdrawn := len(left) < len(r.state.Overrides)
	r.state.Overrides = left
	return withdrawn
}

// steer adds x, replacing an earlier decision about the same subject. If x.Until is 0, it only deletes the earlier
// decision. It returns false if there is nothing to delete, or if there are [MostSteered] decisions about other
// subjects.
func (r *Searches) steer(x search.Steering) bool {
	var left []search.Steering // a new slice because the state owns the old one
	for _, o := range r.state.Steered {
		if o.Subject != x.Subject {
			left = append(left, o)
		}
	}
	if x.Until == 0 {
		withdrawn := len(left) < len(r.state.Steered)
		r.state.Steered = left
		return withdrawn
	}
	if len(left) >= MostSteered {
		return false
	}
	r.state.Steered = append(left, x)
	return true
}

// save implements section. It doesn't save r.state, which has a section of its own.
func (r *Searches) save(s *savedCore) {
	for _, x := range r.list {
		s.Searches = append(s.Searches, x.saved())
	}
}

// restore implements section. The problems and trees of the searches are computed at the end of the next epoch.
func (r *Searches) restore(saved *savedCore) error {
	for i := range saved.Searches {
		x := &saved.Searches[i]
		refined, err := restoreRefinements(&x.Refined)
		if err != nil {
			return err
		}
		s := &incidentSearch{
			incident:    x.Incident,
			service:     x.Service,
			operations:  make(map[trace.Op]bool),
			since:       x.Since,
			requests:    x.Requests,
			spent:       make(map[spentKey]stats.Moments),
			refinements: *refined,
			scanned:     make(map[analysis.Hash]int),
		}
		for _, op := range x.Operations {
			s.operations[op] = true
		}
		for _, t := range x.Spent {
			if s.spent[spentKey{t.RequestType, t.Operation}], _, err = stats.DecodeMoments(t.Times); err != nil {
				return err
			}
		}
		r.list = append(r.list, s)
	}
	return nil
}
