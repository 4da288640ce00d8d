package control

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// catalogue is what all agents with the same one can switch on.
type catalogue struct {
	protocol.Catalogue
	pages  [][]protocol.Tracepoint // that have come; nil: complete
	asked  []time.Time             // when an agent was told to send the page
	agents int
	idle   time.Time     // since when there are none
	done   chan struct{} // closed when it is complete

	services map[string]bool // of its tracepoints; none while pages are missing

	making sync.Mutex            // guards all below; taken after that of the plane
	all    []protocol.Tracepoint // ascending by ID; none while pages are missing
	body   *body
}

// pageTime is how long an agent has to send a page before another is told to: of many agents with the same catalogue few send it.
const pageTime = 5 * time.Second

// catalogue returns the catalogue that c names, made if there is none. The caller holds mu.
func (p *Plane) catalogue(c protocol.Catalogue) (*catalogue, error) {
	list := p.catalogues[c.Hash]
	switch {
	case list != nil && list.Size != c.Size:
		return nil, ErrPages
	case list != nil:
		return list, nil
	case p.tracepoints+c.Size > maxTracepoints:
		return nil, ErrFull
	}
	list = &catalogue{Catalogue: c, pages: make([][]protocol.Tracepoint, c.Pages()), asked: make([]time.Time, c.Pages()), idle: p.options.Clock(), done: make(chan struct{})}
	if c.Size == 0 {
		list.pages = nil
		close(list.done)
	}
	p.catalogues[c.Hash] = list
	p.tracepoints += c.Size
	return list, nil
}

// dropUnused forgets a catalogue that no agent has and that is not complete. The caller holds mu.
func (p *Plane) dropUnused(c *catalogue) {
	if c.agents == 0 && !c.complete() {
		p.drop(c)
	}
}

func (p *Plane) drop(c *catalogue) {
	delete(p.catalogues, c.Hash)
	p.tracepoints -= c.Size
}

func (c *catalogue) complete() bool { return c.pages == nil }

// add takes a page. An error wraps ErrPages: the pages are not what they were said to be, and all are forgotten.
func (c *catalogue) add(page *protocol.Page) error {
	c.pages[page.Number] = page.Tracepoints
	if slices.ContainsFunc(c.pages, func(p []protocol.Tracepoint) bool { return p == nil }) {
		return nil
	}
	all := slices.Concat(c.pages...)
	if !ascending(all) || protocol.HashCatalogue(all) != c.Hash {
		clear(c.pages)
		clear(c.asked)
		return ErrPages
	}
	share(all)
	c.pages, c.asked, c.services = nil, nil, make(map[string]bool)
	for i := range all {
		c.services[all[i].Service] = true
	}
	c.making.Lock()
	defer c.making.Unlock()
	c.all, c.body = all, nil
	close(c.done)
	return nil
}

// ascending reports whether every tracepoint is there once, in order.
func ascending(all []protocol.Tracepoint) bool {
	for i := 1; i < len(all); i++ {
		if all[i-1].ID >= all[i].ID {
			return false
		}
	}
	return true
}

// share makes equal texts of tracepoints the same memory: there are few services, scopes and owners.
func share(all []protocol.Tracepoint) {
	known := make(map[string]string)
	one := func(s *string) {
		if same, found := known[*s]; found {
			*s = same
		} else {
			known[*s] = *s
		}
	}
	for i := range all {
		t := &all[i]
		one(&t.ID) // a parent of others
		for _, s := range []*string{(*string)(&t.Layer), (*string)(&t.Kind), (*string)(&t.SpanKind), (*string)(&t.OwnerKind), &t.Service, &t.Scope, &t.Parent, &t.Owner} {
			one(s)
		}
	}
}

// missing returns the pages that the agent that asks is to send.
func (c *catalogue) missing(now time.Time) []int {
	var list []int
	for i, page := range c.pages {
		if page == nil && now.Sub(c.asked[i]) > pageTime {
			c.asked[i] = now
			list = append(list, i)
		}
	}
	return list
}

// stalled reports whether pages are missing that nobody is expected to send.
func (c *catalogue) stalled(now time.Time) bool {
	for i, page := range c.pages {
		if page == nil && now.Sub(c.asked[i]) > pageTime {
			return true
		}
	}
	return false
}

// content returns the tracepoints, ascending by ID, which nobody changes.
func (c *catalogue) content() []protocol.Tracepoint {
	c.making.Lock()
	defer c.making.Unlock()
	return c.all
}

// find returns the tracepoint with an ID, nil if there is none.
func find(all []protocol.Tracepoint, id string) *protocol.Tracepoint {
	i := sort.Search(len(all), func(i int) bool { return all[i].ID >= id })
	if i < len(all) && all[i].ID == id {
		return &all[i]
	}
	return nil
}
