package sim

import (
	"math"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// program is the code of an application and its hosts. It is immutable once built and shared by all runs.
//
// The code is an acyclic graph of points. Each point comes after the points that it calls.
type program struct {
	given     Config // with defaults filled in
	config    Config // given, but with 0 for negative fractions
	table     *trace.Table
	points    []point
	sites     []site
	rpcs      []rpc
	variables []variable
	services  []service
	hosts     []host
	types     []requestType
	calls     []called
	phase     float64 // time of day at time 0 in radians
	fault     placedFault
	symbols   symbols
}

// point is a potential span in the code: an operation, a function, or a wait.
type point struct {
	mu, sigma float64 // parameters of the log-normal own time in ln ns
	op        trace.Op
	id        trace.Symbol
	cost      int64 // ns per hit of the tracepoint if enabled
	bytes     int32
	service   int32
	sites     span32 // its calls, in program.sites
	variables span32 // in program.variables
	rpc       int32  // of remote calls and messages, in program.rpcs; otherwise -1
	callee    int32  // of CLIENT and PRODUCER points, in program.calls; otherwise -1
	cache     float32
	action    action
	layer     cct.Layer
	kind      trace.Kind
	baseline  bool
	target    bool // the fault acts at this point

	parent        int32   // the first caller, or -1
	owner         int32   // the nearest baseline point of the first caller, or -1
	callers       int32   // number of call sites
	severalOwners bool    // callers have different owners
	nodes         float64 // mean number of executed points in the subtree, including this one
	time          float64 // mean duration in ns
	rate          float64 // mean number of executions per second
	blocked       float64 // executions per second × mean duration of the requests that execute it
}

// span32 is a half-open range of indices.
type span32 struct{ first, end int32 }

// action is the behaviour of a point.
type action uint8

const (
	work     action = iota // has own time and calls
	enter                  // work at the entry of a service
	call                   // makes a remote call
	send                   // sends a message
	acquire                // waits for a lock
	schedule               // waits for a core
	transfer               // work proportional to the payload
	resolve                // resolves a name
	storage                // accesses the disk
	remote                 // waits for a third party
)

// site is a call in the body of a point.
type site struct {
	callee   int32
	chance   float32 // 1 for always
	repeat   float32 // mean number of further calls, geometric
	parallel bool    // starts together with the previous site
	async    bool    // the caller does not wait for it
}

// rpc is a remote call or a message.
type rpc struct {
	callee       int32
	mu, sigma    float64 // log-normal time in ln ns: one way on the wire, or in the queue
	timeout      int64   // in ns
	retries      int32
	failureRatio float32
}

// called describes the callee of a CLIENT or PRODUCER point, as the attributes of its spans do.
type called struct {
	attrs    []trace.Attr    // of every span
	replicas [][2]trace.Attr // address and URL, by host of the callee, from its first; empty if not in traces
	peers    []trace.Op      // by host, too; a single element for callees without replicas
}

// variable is a value that can be captured at a point.
type variable struct {
	id    trace.Symbol
	key   trace.Symbol
	point int32
	cost  int64 // in ns
	kind  variableKind
	noise uint64 // seed of a noiseVariable
}

// variableKind is the source of a variable's values. The values of a noiseVariable are random.
type variableKind uint8

const (
	tenantVariable variableKind = iota
	regionVariable
	sizeVariable
	hitVariable
	noiseVariable
)

type service struct {
	name  string
	sym   trace.Symbol
	tier  int
	hosts span32 // in program.hosts
}

type host struct {
	sym     trace.Symbol
	version trace.Symbol
	speed   float64 // factor on all own times on the host
	skew    int64   // offset of the clock in ns
	pod     trace.Symbol
	id      trace.Symbol // ID of the instance of the service
	address string
}

type requestType struct {
	entry      int32
	weight     float64 // fraction of all requests
	cumulative float64
}

// symbols holds the names used in all traces.
type symbols struct {
	plan, arm, hostName, version, status trace.Symbol
	pod, instance                        trace.Symbol
	tenants, regions                     []weighted
	yes, no                              trace.Symbol
	noise                                []trace.Symbol
}

type weighted struct {
	sym        trace.Symbol
	cumulative float64
}

// draw returns the value at u in the cumulative distribution of values. u is uniform in [0, 1).
func draw(values []weighted, u float64) trace.Symbol {
	for _, v := range values {
		if u < v.cumulative {
			return v.sym
		}
	}
	return values[len(values)-1].sym
}

// mix returns 64 well-mixed bits of a and b.
func mix(a, b uint64) uint64 {
	x := a ^ (b+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps x to a number in [0, 1).
func unit(x uint64) float64 { return float64(x>>11) * 0x1p-53 }

// logNormal returns the parameters of the log-normal distribution with the given mean and coefficient of variation.
func logNormal(mean, cov float64) (mu, sigma float64) {
	v := math.Log1p(cov * cov)
	return math.Log(mean) - v/2, math.Sqrt(v)
}
