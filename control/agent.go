package control

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
)

// agent is an agent as the plane knows it from its messages.
type agent struct {
	id, session, principal string // see [Caller]
	transport              string
	resource               map[string]string
	capabilities           []protocol.Capability
	catalogue              *catalogue
	catalogueChanged       chan struct{} // closed when the agent gets another catalogue
	since, seen            time.Time
	polls                  int                // pending requests for plans
	cancelPoll             context.CancelFunc // ends the latest poll; nil if it has ended
	pollNumber             int                // number of the latest poll, counted from 1
	released               bool               // its connection ended
	conflicts              int                // number of messages of other sessions with its ID

	version  int64 // version of the plan that it last applied; 0 if it is at its baseline
	hash     string
	problem  string // why it applied only part of the last plan or none of it; may be empty
	on       int    // number of applied tracepoints of that plan
	failed   int    // number of tracepoints of that plan that it could not enable
	reported time.Time
	outcomes []report     // ascending by ID
	usage    search.Usage // between the last two statuses, if both are about the same plan
	sampled  bool         // it has reported stacks at least once
	asked    int          // number of times that it was asked for its first stacks
}

// Reasons to refuse an agent. The agent should try again, except after ErrPages and ErrServices. Over HTTP, all other
// refusals include the delay.
var (
	ErrConflict = refusal.New(refusal.Conflict, "another agent has this ID",
		"choose another ID, or wait until that agent is gone")
	ErrUnknown  = refusal.New(refusal.NotFound, "unknown agent", "register again")
	ErrFull     = refusal.New(refusal.Overloaded, "too many agents", "")
	ErrStarting = refusal.New(refusal.Overloaded, "the service is starting", "")
	ErrServices = refusal.New(refusal.Forbidden, "the token is limited to other services",
		"the service, and those of all tracepoints, must be among the services of the token; "+
			"an ID starts with its service and a slash")
	ErrTracepoints = refusal.New(refusal.Overloaded, "no room for the tracepoints of this agent",
		"raise memory, or let agents announce fewer tracepoints; the agent tries again")
	ErrPages = refusal.New(refusal.Invalid, "the pages do not add up to the announced catalogue", "")
)

// overHTTP is the transport of agents that send statuses at regular intervals.
const overHTTP = "http"

// idTimeout is the time since an agent's last message after which another session may take its ID, unless the agent is
// polling. It is short so that a restarted agent soon gets its ID back.
const idTimeout = 5 * time.Second

// Caller identifies the sender of a message.
type Caller struct {
	ID        string   // chosen by the agent
	Session   string   // chosen by the agent when it starts; empty if unknown
	Principal string   // name of the agent's token
	Transport string   // http or opamp
	Services  []string // see [Identity]
}

// speaksFor reports whether the token of c allows it to speak for service.
func (c *Caller) speaksFor(service string) bool {
	return len(c.Services) == 0 || slices.ContainsFunc(c.Services, func(name string) bool {
		prefix, all := strings.CutSuffix(name, "*")
		return name == service || all && strings.HasPrefix(service, prefix)
	})
}

// owns reports whether c may speak for t. If the token is limited to services, the ID must also start with the
// tracepoint's service: reports and plans contain only IDs, so an agent could otherwise claim the ID of another
// service's tracepoint.
func (c *Caller) owns(t *protocol.Tracepoint) bool {
	return len(c.Services) == 0 || c.speaksFor(t.Service) && strings.HasPrefix(t.ID, t.Service+"/")
}

// ownsEach reports whether c owns every tracepoint in all.
func (c *Caller) ownsEach(all []protocol.Tracepoint) bool {
	return !slices.ContainsFunc(all, func(t protocol.Tracepoint) bool { return !c.owns(&t) })
}

// ownsAll reports whether c may speak for all tracepoints in list. An incomplete catalogue is allowed, because no
// tracepoint in it is enabled yet. The caller holds the plane's mu.
func (c *Caller) ownsAll(list *catalogue) bool {
	if len(c.Services) == 0 || !list.complete() {
		return true
	}
	for service := range list.services {
		if !c.speaksFor(service) {
			return false
		}
	}
	return !list.unnamed
}

// lookup returns the agent identified by c, and updates the time of its last message. The error is ErrStarting,
// ErrUnknown, ErrConflict or ErrServices. The caller holds p.mu.
func (p *Plane) lookup(c Caller) (*agent, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	a := p.agents.byID[c.ID]
	switch {
	case a == nil:
		return nil, ErrUnknown
	case c.Session != "" && c.Session != a.session, c.Principal != a.principal:
		p.counts.Conflicts.Add(1)
		a.conflicts++
		return nil, ErrConflict
	case !c.ownsAll(a.catalogue):
		return nil, ErrServices // other agents have completed it
	}
	a.seen = p.options.Clock()
	return a, nil
}

// Register processes a registration and returns the numbers of the pages that the agent should send. r.Page may be nil.
// The error is any of the reasons above except ErrUnknown.
//
// An ID belongs to the session that registered it for as long as that session polls or sends messages. While it does,
// Register refuses other sessions with ErrConflict. A later session takes over the ID, and the former session is
// refused if it returns. Two agents with the same ID therefore don't keep replacing each other.
func (p *Plane) Register(c Caller, r *protocol.Registration) (missing []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(); err != nil {
		return nil, err
	}
	if !c.speaksFor(r.Resource["service.name"]) || r.Page != nil && !c.ownsEach(r.Page.Tracepoints) {
		return nil, ErrServices
	}
	now := p.options.Clock()
	a := p.agents.byID[c.ID]
	var former, displaced *agent // agents to remove when r is accepted
	if a != nil && (a.session != r.Session || a.principal != c.Principal) {
		if !a.released && (a.polls > 0 || now.Sub(a.seen) < idTimeout) {
			a.conflicts++
			p.counts.Conflicts.Add(1)
			return nil, ErrConflict
		}
		former, a = a, nil
	} else if a == nil && len(p.agents.byID) >= p.options.MaxAgents {
		if displaced = p.agents.dispensable(c.Principal); displaced == nil {
			return nil, ErrFull
		}
	}
	list, err := p.acceptCatalogue(&c, r, now)
	if err != nil {
		if errors.Is(err, ErrTracepoints) {
			p.counts.NoRoom.Add(1)
		}
		return nil, err
	}
	if former != nil {
		p.agents.remove(former, now)
	}
	if displaced != nil { // if it is still running, it registers again
		p.agents.remove(displaced, now)
		p.counts.Displaced.Add(1)
	}
	if a == nil {
		a = &agent{
			id:               c.ID,
			session:          r.Session,
			principal:        c.Principal,
			since:            now,
			catalogueChanged: make(chan struct{}),
		}
		p.agents.add(a)
	}
	a.transport, a.resource, a.capabilities, a.seen = c.Transport, shownAttributes(r.Resource), r.Capabilities, now
	if a.catalogue != list {
		a.leaveCatalogue(now)
		close(a.catalogueChanged)
		a.catalogueChanged = make(chan struct{})
		p.agents.setOutcomes(a, nil) // the old outcomes are from another program
		a.catalogue, a.usage, a.on, a.failed = list, search.Usage{}, 0, 0
		list.agents++
	}
	p.counts.Registered.Add(1)
	return list.missing(now), nil
}

// acceptCatalogue returns the catalogue that c announces in r, after adding the page in r. If it returns an error, it
// drops the catalogue unless the catalogue is complete or has agents. The caller holds p.mu.
func (p *Plane) acceptCatalogue(c *Caller, r *protocol.Registration, now time.Time) (*catalogue, error) {
	list, err := p.catalogues.get(r.Catalogue, now)
	if err != nil {
		return nil, err
	}
	if r.Page != nil && !list.complete() {
		err = p.catalogues.add(list, r.Page)
	}
	if err == nil && !c.ownsAll(list) {
		err = ErrServices
	}
	if err != nil {
		p.catalogues.dropUnused(list)
		return nil, err
	}
	return list, nil
}

// shownPrefixes are the prefixes of the resource attributes that are kept, for display.
var shownPrefixes = []string{
	"service.", "host.name", "process.pid", "process.executable.name", "telemetry.sdk.", "telemetry.distro.",
	"deployment.environment", "k8s.pod.name", "k8s.namespace.name", "container.id", "os.type",
}

// maxAttributes limits the number of attributes kept for an agent.
const maxAttributes = 24

// shownAttributes returns the attributes of resource to keep: at most maxAttributes with one of shownPrefixes.
func shownAttributes(resource map[string]string) map[string]string {
	shown := make(map[string]string)
	for k, v := range resource {
		wanted := slices.ContainsFunc(shownPrefixes, func(prefix string) bool { return strings.HasPrefix(k, prefix) })
		if wanted && len(shown) < maxAttributes {
			shown[k] = v
		}
	}
	return shown
}

// expire removes agents that aren't polling and have sent nothing for two leases.
func (p *Plane) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Clock()
	for _, a := range p.agents.byID {
		if a.polls == 0 && now.Sub(a.seen) > 2*p.options.Lease {
			p.agents.remove(a, now)
			p.counts.Expired.Add(1)
		}
	}
}

// Leave removes the agent identified by c, which has announced that it is disconnecting. It ignores an unknown agent.
func (p *Plane) Leave(c Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, err := p.lookup(c); err == nil {
		p.agents.remove(a, a.seen)
	}
}

// Release records that the connection of the agent identified by c ended. Its lease continues, but any session may take
// its ID at once.
func (p *Plane) Release(c Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agents.byID[c.ID]; a != nil && a.session == c.Session {
		a.released = true
	}
}

// leaveCatalogue removes a from its catalogue, if it has one.
func (a *agent) leaveCatalogue(now time.Time) {
	if a.catalogue == nil {
		return
	}
	if a.catalogue.agents--; a.catalogue.agents == 0 {
		a.catalogue.idle = now
	}
	a.catalogue = nil
}

// jitter returns a fraction in [0, 1) that depends only on id, the ID of an agent. It spreads the requests of many
// agents over time.
func jitter(id string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return float64(h.Sum32()) / (1 << 32)
}
