package shop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
)

// Fault is a kind of fault of the shop.
type Fault string

// The faults.
const (
	SlowPath   Fault = "slow-path"   // one value of an attribute takes a slow branch: it computes
	Lock       Fault = "lock"        // a job holds a lock that two types of requests acquire
	ThirdParty Fault = "third-party" // a third party responds late
	Pool       Fault = "pool"        // the connection pool of a database is too small
	GC         Fault = "gc"          // much garbage and a large heap
	Disk       Fault = "disk"        // reads come from the disk instead of the page cache
	Fsync      Fault = "fsync"       // more data is written and synced
	DNS        Fault = "dns"         // the name server answers late
	Payload    Fault = "payload"     // larger replies
	Replica    Fault = "replica"     // the database of one replica lacks an index
	Neighbour  Fault = "neighbour"   // another process takes the CPU of a service
	None       Fault = "none"
)

// Faults returns the faults that lie in a function or a call of a service.
func Faults() []Fault {
	return []Fault{SlowPath, Lock, ThirdParty, Pool, GC, Disk, Fsync, DNS, Payload, Replica}
}

// AllFaults returns all faults except None. Those beyond [Faults] show only in the kernel.
func AllFaults() []Fault { return append(Faults(), Neighbour) }

// Severity of the faults.
const (
	slowRounds      = 60_000  // hashing rounds in the slow branch
	liveObjects     = 400_000 // objects of the retained heap
	garbageObjects  = 20_000  // objects of a discarded tree
	garbageTrees    = 12      // discarded trees per request
	normalText      = 8 << 10 // bytes of text in a reply
	picturesText    = 5 << 18 // bytes of text in a reply with pictures
	pictureFraction = 0.5     // fraction of the replies that have pictures
	thirdPartyDelay = 90 * time.Millisecond
	diskDelay       = 100 * time.Millisecond
)

// Edge is an operation of a service.
type Edge struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	Target    string `json:"target,omitempty"` // of a call: the callee, if known
}

// String returns "service operation → target".
func (e *Edge) String() string {
	if e.Target != "" {
		return e.Service + " " + e.Operation + " → " + e.Target
	}
	return e.Service + " " + e.Operation
}

// Truth is the location of a fault.
type Truth struct {
	Edge
	Waits  []string `json:"waits,omitempty"`  // classes of kernel waits in which its requests spend the additional time
	Inside []string `json:"inside,omitempty"` // operations called by it that are a correct answer, too
	Table  string   `json:"table,omitempty"`  // statements of it on this table are a correct answer, too; may be ""
	Whole  bool     `json:"whole,omitempty"`  // all operations of the service and calls to it are correct, too
}

// Located reports whether e is the location of the fault or another correct answer. The target of a third party may be
// unknown, and names of calls with a target lack "HTTP".
func (t *Truth) Located(e *Edge) bool {
	if t.Whole && (e.Service == t.Service || strings.HasPrefix(e.Target, t.Service+" ")) {
		return true
	}
	if e.Service != t.Service {
		return false
	}
	if e.Target != "" && "HTTP "+e.Operation == t.Operation {
		return true
	}
	if slices.ContainsFunc(t.Waits, func(class string) bool { return e.Operation == detect.Waiting(class) }) {
		return true
	}
	statement := e.Operation == "SELECT" && t.Table != "" &&
		(strings.HasSuffix(e.Target, "."+t.Table) || strings.HasSuffix(e.Target, " "+t.Table))
	return e.Operation == t.Operation || slices.Contains(t.Inside, e.Operation) || statement
}

// site is a possible location of a fault.
type site struct {
	Edge
	step string // name of the faulty step or of the host; "" if the operation itself is faulty
}

// sites lists the possible locations of each fault.
var sites = map[Fault][]site{
	SlowPath: {in("pricing", "tax.rates"), in("search", "query.spell"), in("catalog", "item.attributes")},
	Lock:     {in("inventory", "stock.update"), in("reviews", "cache.touch")},
	ThirdParty: {
		{Edge{Service: "payment", Operation: httpCall}, "/authorize"},
		{Edge{Service: "inventory", Operation: httpCall}, "/delivery"},
	},
	Pool:  {in("orders", "orders.acquire"), in("payment", "ledger.acquire")},
	GC:    {in("reviews", "summary.build"), in("search", "facets.count")},
	Disk:  {in("orders", "history.archive"), in("catalog", "item.picture")},
	Fsync: {in("orders", "audit.append"), in("inventory", "movements.append")},
	DNS: {
		{Edge{Service: "inventory", Operation: "deliver.resolve"}, carrierHost},
		{Edge{Service: "payment", Operation: "bank.resolve"}, bankHost},
	},
	Payload:   {in("catalog", "list.encode"), in("orders", "history.encode")},
	Replica:   {in("pricing", "base.select"), in("pricing", "rates.select")},
	Neighbour: {in("search", "rank.score")},
}

// in returns the site of a fault in an operation itself.
func in(service, operation string) site {
	return site{Edge: Edge{Service: service, Operation: operation}}
}

// waitsOf lists, by fault, the classes of kernel waits that its requests spend time in. Requests with other faults
// compute, or wait without a waiting thread: for a goroutine, or for the network in Go's runtime.
var waitsOf = map[Fault][]string{
	Lock:      {"futex"},
	Disk:      {"file"},
	Fsync:     {"sync"},
	DNS:       {"dns"},
	Neighbour: {"runqueue", "preempted"},
	JavaLock:  {"futex"},
}

// WaitsOf returns the classes of kernel waits that requests with a fault spend time in.
func WaitsOf(f Fault) []string { return waitsOf[f] }

// placedFault is a fault at a location.
type placedFault struct {
	kind Fault
	site site
	seed uint64 // of the remaining choices
}

// newFault returns a fault at a location that the seed selects.
func newFault(kind Fault, seed uint64) (*placedFault, error) {
	list := sites[kind]
	if len(list) == 0 {
		return nil, fmt.Errorf("no fault is named %q", kind)
	}
	s := list[seed%uint64(len(list))]
	s.step = cmp.Or(s.step, s.Operation)
	return &placedFault{kind: kind, site: s, seed: seed / uint64(len(list))}, nil
}

// faultAt returns the injected fault if it has the given kind and step, otherwise nil.
func (s *service) faultAt(kind Fault, step string) *placedFault {
	f := s.fault.Load()
	if f == nil || f.kind != kind || f.site.step != step {
		return nil
	}
	return f
}

// matches reports whether a request takes the slow branch. The value of its attribute is never the rare one.
func (f *placedFault) matches(q *Request) bool {
	if f.site.Service == "search" {
		return q.Language == languages[f.seed%uint64(len(languages)-1)]
	}
	return q.Currency == currencies[f.seed%uint64(len(currencies)-1)]
}

// inject injects a fault if its location is in this process, and writes the location to the truth file. It reports
// whether the fault was injected.
func (s *service) inject(ctx context.Context, i *Injection) (bool, error) {
	if slices.Contains(JavaFaults(), i.Fault) {
		return false, nil
	}
	f, err := newFault(i.Fault, i.Seed)
	if err != nil {
		return false, err
	}
	if !s.contains(f) {
		return false, nil
	}
	t := Truth{Edge: f.site.Edge, Waits: waitsOf[f.kind], Whole: f.kind == Neighbour}
	if f.kind == Replica {
		t.Table = tableOf[f.site.Operation]
	}
	if err := writeTruth(s.truth, &t); err != nil {
		return false, err
	}
	if err := s.prepare(ctx, f); err != nil {
		return false, err
	}
	s.fault.Store(f)
	return true, nil
}

// writeTruth writes the location of a fault to a file.
func writeTruth(path string, t *Truth) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode the location of the fault: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write the location of the fault: %w", err)
	}
	return nil
}

// prepare makes the changes of a fault that happen outside of requests.
func (s *service) prepare(ctx context.Context, f *placedFault) error {
	switch f.kind {
	case Pool:
		s.db.SetMaxOpenConns(1)
	case Replica:
		return s.dropIndex(ctx, tableOf[f.site.Operation])
	case Lock:
		go s.holdLock(ctx, f.site.step) // ends with the process
	case Disk:
		if _, err := s.archives[f.site.step].cold(); err != nil {
			return fmt.Errorf("read from the disk (TMPDIR must be on one): %w", err)
		}
	case Neighbour:
		return s.startNeighbour()
	case SlowPath, ThirdParty, GC, Fsync, DNS, Payload, None: // requests check for the fault
	case JavaMethod, JavaLock, JavaGC, JavaQuery, JavaNPlus1: // of the service in Java
	}
	return nil
}

// tableOf contains the table of each query that [Replica] can slow down.
var tableOf = map[string]string{"base.select": "prices", "rates.select": "rates"}

// contains reports whether the location of f is in this process.
func (s *service) contains(f *placedFault) bool {
	if f.kind == ThirdParty || f.kind == DNS {
		return s.name == Outside
	}
	replica := f.kind != Replica || uint64(s.instance) == f.seed%uint64(len(s.peers[s.name]))
	return s.name == f.site.Service && replica
}

// pictures returns the text of replies with pictures.
func (s *service) pictures() string {
	if text := s.large.Load(); text != nil {
		return *text
	}
	text := description(picturesText)
	s.large.Store(&text)
	return text
}

// replyAfter returns a step of a third party, which sleeps for d times the request's effort.
func (s *service) replyAfter(path string, d time.Duration) step {
	return step{do: func(c *call) error {
		wait := time.Duration(float64(d) * c.request.Effort)
		if s.faultAt(ThirdParty, path) != nil {
			wait += thirdPartyDelay
		}
		select {
		case <-time.After(wait):
			return nil
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}}
}
