package control

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
)

// catalogue is a list of tracepoints, shared by all agents that announced the same list.
type catalogue struct {
	protocol.Catalogue
	pages     [][]protocol.Tracepoint // received pages by number; nil once all were received
	requested []time.Time             // by page: when an agent was last asked for it
	text      int                     // length of its distinct texts in bytes, per page until all pages were received
	agents    int
	idle      time.Time     // when it lost its last agent
	done      chan struct{} // closed when all pages were received

	services map[string]bool // services of its tracepoints; nil while pages are missing
	unnamed  bool            // an ID does not start with its service and a slash

	mu   sync.Mutex   // guards the fields below; locked after Plane.mu
	all  []tracepoint // ascending by ID; nil while pages are missing
	plan *encodedPlan // latest part of a plan; may be nil
}

// tracepoint is an entry of a complete catalogue: the fields of a [protocol.Tracepoint] that decisions and reports
// need.
type tracepoint struct {
	search.Announced

	service string
}

// pageTimeout is the time that an agent has to send a page before another agent is asked for it. Each page is thus sent
// by only a few of the agents that have the same catalogue.
const pageTimeout = 5 * time.Second

// catalogues holds the known catalogues. The mutex of the plane guards them.
type catalogues struct {
	byHash      map[string]*catalogue
	tracepoints int // number of tracepoints in all catalogues
	text        int // total length of the texts in all catalogues in bytes
	limit       int // maximum number of tracepoints
}

// get returns the catalogue with the hash of c, and adds it if it is new. It returns ErrPages if the known catalogue
// has another size, and ErrTracepoints if there are too many tracepoints.
func (s *catalogues) get(c protocol.Catalogue, now time.Time) (*catalogue, error) {
	list := s.byHash[c.Hash]
	switch {
	case list != nil && list.Size != c.Size:
		return nil, ErrPages
	case list != nil:
		return list, nil
	case s.tracepoints+c.Size > s.limit:
		return nil, ErrTracepoints
	}
	list = &catalogue{
		Catalogue: c,
		pages:     make([][]protocol.Tracepoint, c.Pages()),
		requested: make([]time.Time, c.Pages()),
		idle:      now,
		done:      make(chan struct{}),
	}
	if c.Size == 0 {
		list.pages = nil
		close(list.done)
	}
	s.byHash[c.Hash] = list
	s.tracepoints += c.Size
	return list, nil
}

// dropUnused removes c if it is incomplete and has no agents.
func (s *catalogues) dropUnused(c *catalogue) {
	if c.agents == 0 && !c.complete() {
		s.drop(c)
	}
}

func (s *catalogues) drop(c *catalogue) {
	delete(s.byHash, c.Hash)
	s.tracepoints -= c.Size
	s.text -= c.text
}

// add adds page to c; see [catalogue.add]. It returns ErrTracepoints if the texts are too long.
func (s *catalogues) add(c *catalogue, page *protocol.Page) error {
	if c.pages[page.Number] == nil && s.text+intern(page.Tracepoints) > s.limit*textPerTracepoint {
		return ErrTracepoints
	}
	before := c.text
	err := c.add(page)
	s.text += c.text - before
	return err
}

// dropReplaced drops catalogues without agents. If all services of such a catalogue have other catalogues, it drops the
// catalogue at once, and otherwise after ttl, because agents may return after an interrupted connection or a restart.
func (s *catalogues) dropReplaced(now time.Time, ttl time.Duration) {
	alive := make(map[string]bool)
	for _, c := range s.byHash {
		if c.agents > 0 && c.complete() {
			for service := range c.services {
				alive[service] = true
			}
		}
	}
	for _, c := range s.byHash {
		if c.agents > 0 {
			continue
		}
		replaced := true
		for service := range c.services {
			replaced = replaced && alive[service]
		}
		if replaced || now.Sub(c.idle) > ttl {
			s.drop(c)
		}
	}
}

// complete returns the complete catalogues, ascending by hash.
func (s *catalogues) complete() []*catalogue {
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.byHash)), func(c *catalogue) bool { return !c.complete() })
	sorting.Slice(all, func(a, b *catalogue) int { return cmp.Compare(a.Hash, b.Hash) })
	return all
}

// complete reports whether all pages have been received.
func (c *catalogue) complete() bool { return c.pages == nil }

// add adds a page. Once all pages are there, it checks their hash. If the hash differs from the announced one, it
// discards all pages and returns ErrPages.
func (c *catalogue) add(page *protocol.Page) error {
	c.text += intern(page.Tracepoints) - intern(c.pages[page.Number])
	c.pages[page.Number] = page.Tracepoints
	if slices.ContainsFunc(c.pages, func(p []protocol.Tracepoint) bool { return p == nil }) {
		return nil
	}
	all := slices.Concat(c.pages...)
	if !ascending(all) || protocol.HashCatalogue(all) != c.Hash {
		clear(c.pages)
		clear(c.requested)
		c.text = 0
		return ErrPages
	}
	for i := range all {
		all[i].Scope, all[i].Code = "", "" // no longer needed
	}
	c.text = intern(all)
	c.pages, c.requested, c.services = nil, nil, make(map[string]bool)
	list := make([]tracepoint, len(all))
	for i := range all {
		t := &all[i]
		c.services[t.Service] = true
		c.unnamed = c.unnamed || !strings.HasPrefix(t.ID, t.Service+"/")
		list[i] = tracepoint{announced(t), t.Service}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.plan = list, nil
	close(c.done)
	return nil
}

// ascending reports whether the IDs in all are strictly ascending.
func ascending(all []protocol.Tracepoint) bool {
	for i := 1; i < len(all); i++ {
		if all[i-1].ID >= all[i].ID {
			return false
		}
	}
	return true
}

// intern makes equal strings in all share memory, because there are only a few distinct services, scopes and owners,
// and the ID of a method contains its operation. It returns the total length of the distinct strings in bytes.
func intern(all []protocol.Tracepoint) (bytes int) {
	known := make(map[string]string)
	for i := range all {
		t := &all[i]
		for s := range texts(t) {
			if same, found := known[*s]; found {
				*s = same
				continue
			}
			known[*s] = *s
			bytes += len(*s)
			if at := strings.Index(t.ID, t.Operation); s == &t.ID && at >= 0 && known[t.Operation] == "" {
				known[t.Operation] = t.ID[at:][:len(t.Operation)]
			}
		}
	}
	return bytes
}

// texts yields pointers to the strings of t. The ID comes first, because it is often the parent of other tracepoints.
func texts(t *protocol.Tracepoint) iter.Seq[*string] {
	return slices.Values([]*string{
		&t.ID,
		(*string)(&t.Layer),
		(*string)(&t.Kind),
		(*string)(&t.SpanKind),
		(*string)(&t.OwnerKind),
		&t.Service,
		&t.Scope,
		&t.Parent,
		&t.Owner,
		&t.Operation,
		&t.Code,
	})
}

// missing returns the numbers of the pages that the calling agent should send, and records that the agent was asked
// for them.
func (c *catalogue) missing(now time.Time) []int {
	var list []int
	for i, page := range c.pages {
		if page == nil && now.Sub(c.requested[i]) > pageTimeout {
			c.requested[i] = now
			list = append(list, i)
		}
	}
	return list
}

// stalled reports whether a page is missing and no agent is about to send it.
func (c *catalogue) stalled(now time.Time) bool {
	for i, page := range c.pages {
		if page == nil && now.Sub(c.requested[i]) > pageTimeout {
			return true
		}
	}
	return false
}

// content returns the tracepoints, ascending by ID, or nil while pages are missing. The slice is immutable.
func (c *catalogue) content() []tracepoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// find returns the tracepoint in all with the given ID, or nil. all must be ascending by ID.
func find(all []tracepoint, id string) *tracepoint {
	i := sort.Search(len(all), func(i int) bool { return all[i].ID >= id })
	if i < len(all) && all[i].ID == id {
		return &all[i]
	}
	return nil
}
