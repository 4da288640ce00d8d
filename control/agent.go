package control

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
)

// agent is what is known of one agent.
type agent struct {
	id, session, principal string // who it is; who vouches for it
	transport              string
	resource               map[string]string
	capabilities           []protocol.Capability
	catalogue              *catalogue
	moved                  chan struct{} // closed when it gets another catalogue
	since, seen            time.Time
	polls                  int                // that wait for an answer now
	yield                  context.CancelFunc // ends the poll that waits; nil: none does
	nth                    int                // number of the poll that yield is of
	released               bool               // its connection ended
	conflicts              int                // others that came with its id

	version  int64 // of the plan that it applied last
	hash     string
	problem  string // why it did not apply the last one, or not all of it
	on       int    // tracepoints of that plan
	failed   int    // that it could not switch on
	reported time.Time
	outcomes []protocol.Outcome // ascending by ID
	usage    search.Usage       // since the status before, if both are of one plan
}

// Refusals of agents. Except for ErrPages, an agent should try again later: over HTTP it is told when.
var (
	ErrConflict = refusal.New(refusal.Conflict, "another agent has this id", "take a new one, or wait until that one is gone")
	ErrUnknown  = refusal.New(refusal.NotFound, "this agent is not known (any more)", "register")
	ErrFull     = refusal.New(refusal.Overloaded, "too many agents, or tracepoints", "")
	ErrStarting = refusal.New(refusal.Overloaded, "the service is starting", "")
	ErrPages    = refusal.New(refusal.Invalid, "the pages do not make the catalogue that was announced", "")
)

// quiet is how long an agent that neither waits for a plan nor asks for one keeps its id from others: one that was
// killed and started again must not wait long for it.
const quiet = 5 * time.Second

// Caller says who sends a message.
type Caller struct {
	ID        string // that the agent chose
	Session   string // that it made up when it started; empty: it does not say
	Principal string // who vouches for it: the name of a token
	Transport string // how it comes: a word
}

// find returns the agent that c is. The caller of find holds mu.
func (p *Plane) find(c Caller) (*agent, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	a := p.agents[c.ID]
	switch {
	case a == nil:
		return nil, ErrUnknown
	case c.Session != "" && c.Session != a.session, c.Principal != a.principal:
		p.counts.Conflicts.Add(1)
		a.conflicts++
		return nil, ErrConflict
	}
	a.seen = p.options.Clock()
	return a, nil
}

// Register takes a registration, whose page r.Page may be nil though one was sent if the catalogue is known. It returns
// which pages are missing. An error is one of those above.
//
// An id belongs to the session that registered it, for as long as that asks for plans. Whoever comes meanwhile with the
// same id is told so and has to take another; who comes later gets it, and the former one, should it come back, is told
// so. Neither can make the other forget its plan every few seconds.
func (p *Plane) Register(c Caller, r *protocol.Registration) (missing []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(); err != nil {
		return nil, err
	}
	now := p.options.Clock()
	a := p.agents[c.ID]
	if a != nil && (a.session != r.Session || a.principal != c.Principal) {
		if !a.released && (a.polls > 0 || now.Sub(a.seen) < quiet) {
			a.conflicts++
			p.counts.Conflicts.Add(1)
			return nil, ErrConflict
		}
		p.remove(a)
		a = nil
	}
	if a == nil && len(p.agents) >= p.options.MaxAgents {
		return nil, ErrFull
	}
	list, err := p.catalogue(r.Catalogue)
	if err != nil {
		return nil, err
	}
	if r.Page != nil && !list.complete() {
		if err := list.add(r.Page); err != nil {
			p.dropUnused(list)
			return nil, err
		}
	}
	if a == nil {
		a = &agent{id: c.ID, session: r.Session, principal: c.Principal, since: now, moved: make(chan struct{})}
		p.agents[c.ID] = a
	}
	a.transport, a.resource, a.capabilities, a.seen = c.Transport, kept(r.Resource), r.Capabilities, now
	if a.catalogue != list {
		p.leave(a)
		close(a.moved)
		a.moved = make(chan struct{})
		p.keep(a, nil) // it is another program now
		a.catalogue, a.usage, a.on, a.failed = list, search.Usage{}, 0, 0
		list.agents++
	}
	p.counts.Registered.Add(1)
	return list.missing(now), nil
}

// keptResource are the prefixes of the attributes of resources that are shown.
var keptResource = []string{
	"service.", "host.name", "process.pid", "process.executable.name", "telemetry.sdk.", "telemetry.distro.", "deployment.environment",
	"k8s.pod.name", "k8s.namespace.name", "container.id", "os.type",
}

// mostResource is how many attributes are kept of an agent.
const mostResource = 24

// kept returns the attributes of a resource that are shown.
func kept(resource map[string]string) map[string]string {
	few := make(map[string]string)
	for k, v := range resource {
		if len(few) < mostResource && slices.ContainsFunc(keptResource, func(prefix string) bool { return strings.HasPrefix(k, prefix) }) {
			few[k] = v
		}
	}
	return few
}

// expire forgets agents whose leases ended long ago.
func (p *Plane) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Clock()
	for _, a := range p.agents {
		if a.polls == 0 && now.Sub(a.seen) > 2*p.options.Lease {
			p.remove(a)
			p.counts.Expired.Add(1)
		}
	}
}

// Leave forgets an agent that said good-bye.
func (p *Plane) Leave(c Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, err := p.find(c); err == nil {
		p.remove(a)
	}
}

// Release notes that the connection of an agent ended: its lease goes on, and whoever comes with its id next gets it.
func (p *Plane) Release(c Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agents[c.ID]; a != nil && a.session == c.Session {
		a.released = true
	}
}

// remove forgets an agent. The caller holds mu.
func (p *Plane) remove(a *agent) {
	if a.yield != nil {
		a.yield()
	}
	p.leave(a)
	p.keep(a, nil)
	delete(p.agents, a.id)
}

// leave takes an agent's catalogue from it. The caller holds mu.
func (p *Plane) leave(a *agent) {
	if a.catalogue == nil {
		return
	}
	if a.catalogue.agents--; a.catalogue.agents == 0 {
		a.catalogue.idle = p.options.Clock()
	}
	a.catalogue = nil
}

// spread returns a fraction in [0, 1) that is an agent's own: what all would do at the same time they do one after the
// other.
func spread(id string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	return float64(h.Sum32()) / (1 << 32)
}
