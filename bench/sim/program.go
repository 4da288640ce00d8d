package sim

import (
	"math"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// program is the code of an application and where it runs. It is immutable once built and shared by all runs.
//
// Code is a graph of points without cycles: every point comes after all points that it calls.
type program struct {
	given     Config // with defaults
	config    Config // the same with 0 for what is negative
	table     *trace.Table
	points    []point
	sites     []site
	rpcs      []rpc
	variables []variable
	services  []service
	hosts     []host
	types     []requestType
	phase     float64 // of the day at time 0, radians
	fault     fault
	symbols   symbols
}

// point is a place in the code where a span can begin: an operation, a function, a wait.
type point struct {
	mu, sigma float64 // own time, log-normal, ln ns
	op        trace.Op
	id        trace.Symbol
	cost      int64 // ns a hit while switched on
	bytes     int32
	service   int32
	sites     span32 // what it calls, in program.sites
	variables span32 // what can be captured in it, in program.variables
	rpc       int32  // for remote calls and messages, in program.rpcs
	cache     float32
	action    action
	layer     cct.Layer
	kind      trace.Kind
	baseline  bool
	target    bool // the fault acts here

	parent  int32   // the first caller; -1: none
	owner   int32   // the nearest baseline point of the first caller; -1: none
	callers int32   // call sites
	owners  bool    // callers have several owners
	nodes   float64 // points executed below and including this one, in the mean
	time    float64 // ns from start to end, in the mean
	rate    float64 // executions per second, in the mean
	blocked float64 // executions per second × mean duration of the requests they happen in
}

// span32 is a half-open range of indices.
type span32 struct{ first, end int32 }

// action is what executing a point means.
type action uint8

const (
	work     action = iota // own time and what it calls
	enter                  // work at the entry of a service
	call                   // a remote call
	send                   // a message
	acquire                // wait for a lock
	schedule               // wait for a core
	transfer               // work proportional to the payload
	resolve                // name resolution
	storage                // disk
	remote                 // wait for a third party
)

// site is a call in the body of a point.
type site struct {
	callee   int32
	chance   float32 // 1: always
	repeat   float32 // further calls in the mean, geometric
	parallel bool    // begins together with the site before it
	async    bool    // nobody waits for it
}

// rpc is a remote call or a message: what both ends and the wire do.
type rpc struct {
	callee       int32
	mu, sigma    float64 // one way on the wire, or in the queue; log-normal, ln ns
	timeout      int64   // ns
	retries      int32
	failureRatio float32
}

// variable is something that can be captured at a point.
type variable struct {
	id    trace.Symbol
	key   trace.Symbol
	point int32
	cost  int64
	sort  variableSort
	noise uint64 // for what means nothing
}

type variableSort uint8

const (
	tenantVariable variableSort = iota
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
	speed   float64 // factor on all own times
	skew    int64   // ns
}

type requestType struct {
	entry      int32
	weight     float64 // fraction of all requests
	cumulative float64
}

// symbols are the names that every trace uses.
type symbols struct {
	plan, arm, hostName, version, status trace.Symbol
	tenants, regions                     []weighted
	yes, no                              trace.Symbol
	noise                                []trace.Symbol
}

type weighted struct {
	sym        trace.Symbol
	cumulative float64
}

// draw returns the value that u, uniform in [0, 1), stands for.
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

// unit returns x as a number in [0, 1).
func unit(x uint64) float64 { return float64(x>>11) * 0x1p-53 }

// logNormal returns the parameters of the log-normal distribution with the given mean and coefficient of variation.
func logNormal(mean, cov float64) (mu, sigma float64) {
	v := math.Log1p(cov * cov)
	return math.Log(mean) - v/2, math.Sqrt(v)
}
