package shop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Fault is what is made wrong with the shop.
type Fault string

// The faults.
const (
	SlowPath   Fault = "slow-path"   // a slow branch for one value of an attribute
	Lock       Fault = "lock"        // a lock that two types of requests take is held too long
	ThirdParty Fault = "third-party" // somebody else's service is slow
	Pool       Fault = "pool"        // too few connections to a database
	GC         Fault = "gc"          // garbage collection pressure
	Disk       Fault = "disk"        // more is written to disk, and synced
	Payload    Fault = "payload"     // larger replies
	Replica    Fault = "replica"     // an index is missing in the database of one replica
	None       Fault = "none"
)

// Faults returns all faults but none.
func Faults() []Fault {
	return []Fault{SlowPath, Lock, ThirdParty, Pool, GC, Disk, Payload, Replica}
}

// How much is wrong.
const (
	slowRounds     = 25_000  // of hashing, for requests that take the slow branch
	lockedRounds   = 15_000  // while the lock is held
	liveObjects    = 400_000 // that the garbage collector follows each time
	garbageObjects = 20_000  // of each tree that is thrown away
	garbageTrees   = 12      // for each request
	normalText     = 8 << 10 // bytes of text in a reply
	picturesText   = 5 << 18 // with pictures
	picturedPart   = 0.5     // of the requests have pictures
	thirdPartyFor  = 90 * time.Millisecond
	diskFor        = 100 * time.Millisecond
)

// Edge is a place in the shop.
type Edge struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
}

// String returns "service operation".
func (e *Edge) String() string { return e.Service + " " + e.Operation }

// site is where a fault can be.
type site struct {
	Edge
	where string // name that the step has which is faulty, if not that of the operation
}

// sites holds, for each fault, where it can be.
var sites = map[Fault][]site{
	SlowPath:   {{Edge: Edge{"pricing", "tax.rates"}}, {Edge: Edge{"search", "query.spell"}}, {Edge: Edge{"catalog", "item.attributes"}}},
	Lock:       {{Edge: Edge{"inventory", "stock.update"}}, {Edge: Edge{"reviews", "cache.touch"}}},
	ThirdParty: {{Edge{"payment", "POST /authorize"}, "/authorize"}, {Edge{"inventory", "POST /delivery"}, "/delivery"}},
	Pool:       {{Edge: Edge{"orders", "orders.acquire"}}, {Edge: Edge{"payment", "ledger.acquire"}}},
	GC:         {{Edge: Edge{"reviews", "summary.build"}}, {Edge: Edge{"search", "facets.count"}}},
	Disk:       {{Edge: Edge{"orders", "audit.append"}}, {Edge: Edge{"inventory", "movements.append"}}},
	Payload:    {{Edge: Edge{"catalog", "list.encode"}}, {Edge: Edge{"orders", "history.encode"}}},
	Replica:    {{Edge: Edge{"pricing", "base.select"}}, {Edge: Edge{"pricing", "rates.select"}}},
}

// fault is a fault at its place.
type fault struct {
	kind Fault
	site site
	seed uint64
}

// newFault returns the fault that a seed puts somewhere.
func newFault(kind Fault, seed uint64) (*fault, error) {
	list := sites[kind]
	if len(list) == 0 {
		return nil, fmt.Errorf("no fault is called %q", kind)
	}
	s := list[seed%uint64(len(list))]
	s.where = cmp.Or(s.where, s.Operation)
	return &fault{kind: kind, site: s, seed: seed / uint64(len(list))}, nil
}

// at returns the present fault if it is of a kind and at a step of this service; nil if not.
func (s *service) at(kind Fault, where string) *fault {
	f := s.fault.Load()
	if f == nil || f.kind != kind || f.site.where != where {
		return nil
	}
	return f
}

// matches reports whether a request has the value of the attribute that takes the slow branch, which is not the rare one.
func (f *fault) matches(q *Request) bool {
	if f.site.Service == "search" {
		return q.Language == languages[f.seed%uint64(len(languages)-1)]
	}
	return q.Currency == currencies[f.seed%uint64(len(currencies)-1)]
}

// inject makes a fault, if it is one of this process. It tells nobody but the file of truths.
func (s *service) inject(ctx context.Context, i *Injection) (bool, error) {
	f, err := newFault(i.Fault, i.Seed)
	if err != nil {
		return false, err
	}
	if !s.has(f) {
		return false, nil
	}
	truth, err := json.Marshal(f.site.Edge)
	if err != nil {
		return false, fmt.Errorf("write down the fault: %w", err)
	}
	if err := os.WriteFile(s.truth, truth, 0o600); err != nil {
		return false, fmt.Errorf("write down the fault: %w", err)
	}
	if f.kind == Pool {
		s.db.SetMaxOpenConns(1)
	}
	if f.kind == Replica {
		if err := s.dropIndex(ctx, tableOf[f.site.Operation]); err != nil {
			return false, err
		}
	}
	s.fault.Store(f)
	return true, nil
}

// tableOf holds the tables that queries of replicas read.
var tableOf = map[string]string{"base.select": "prices", "rates.select": "rates"}

// has reports whether this process is where a fault is made.
func (s *service) has(f *fault) bool {
	if f.kind == ThirdParty {
		return s.name == Outside
	}
	replica := f.kind != Replica || uint64(s.instance) == f.seed%uint64(len(s.peers[s.name]))
	return s.name == f.site.Service && replica
}

// pictures returns the text that replies are too large with.
func (s *service) pictures() string {
	if text := s.large.Load(); text != nil {
		return *text
	}
	text := description(picturesText)
	s.large.Store(&text)
	return text
}

// answersAfter is a step of somebody else's service, whose work nobody sees.
func (s *service) answersAfter(path string, usually time.Duration) step {
	return step{do: func(c *call) error {
		wait := time.Duration(float64(usually) * c.request.Effort)
		if s.at(ThirdParty, path) != nil {
			wait += thirdPartyFor
		}
		select {
		case <-time.After(wait):
			return nil
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}}
}
