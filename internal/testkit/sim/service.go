package sim

import (
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Units of means, in ns.
const (
	microsecond = 1e3
	millisecond = 1e6
)

// operation is an operation of a service under construction.
type operation struct {
	functions int     // number of tracepoints of the operation itself
	callees   []int32 // entries of other services that it calls
	nodes     float64 // mean number of points executed by the callees
}

func (o *operation) add(callee int32, nodes float64) {
	o.callees = append(o.callees, callee)
	o.nodes += nodes
}

// serviceBuilder builds a service: first the points shared by its operations (kernel, runtime, helpers), then the
// operations.
type serviceBuilder struct {
	*builder
	names      namer
	service    int32
	operations []operation
	entries    []int32
	variables  int             // remaining quota of variables
	attached   [][]int32       // shared points that each function of the service calls
	scheduler  []int32         // run queues
	collector  []int32         // garbage collections
	codecs     []int32         // serializers
	resolver   []int32         // name resolution
	remotes    map[int32]int32 // calling point by remote entry
	next       int             // index of the next function
}

// newService divides a quota of tracepoints among layers and operations, and builds the shared points.
func (b *builder) newService(s int32, quota int) *serviceBuilder {
	sb := &serviceBuilder{
		builder: b,
		names:   namer{b.rng, make(map[string]int)},
		service: s,
		remotes: make(map[int32]int32),
	}
	kernel, runtime := max(4, quota*12/100), max(2, quota*14/100)
	helpers := quota * 6 / 100
	size := 18 + b.rng.IntN(20)
	if b.services[s].tier == 0 { // gateways have many small operations
		size /= 2
	}
	ops := max(1, (quota-kernel-runtime-helpers)/size)
	sb.variables = max(1, quota*3/100)
	if b.services[s].tier == 0 {
		sb.variables = 3 * ops
	}
	functions := quota - kernel - runtime - helpers - sb.variables
	for ops > 1 && functions < 3*ops {
		ops--
	}
	sb.operations = make([]operation, ops)
	sb.splitFunctions(functions)
	sb.attached = make([][]int32, functions)
	sb.shareKernel(kernel)
	sb.shareRuntime(runtime)
	sb.shareHelpers(helpers)
	return sb
}

// splitFunctions divides the functions unevenly among the operations, with at least two for each if there are enough.
func (sb *serviceBuilder) splitFunctions(functions int) {
	n := len(sb.operations)
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = sb.logUniform(0.5, 2)
		sum += weights[i]
	}
	floor := min(2, functions/n)
	left := functions
	for i := range sb.operations {
		k := floor + int(float64(functions-floor*n)*weights[i]/sum)
		sb.operations[i].functions = k
		left -= k
	}
	for i := 0; left > 0; i = (i + 1) % n {
		sb.operations[i].functions++
		left--
	}
}

// attach makes point a callee of about the given fraction of the service's functions, but of at least one.
func (sb *serviceBuilder) attach(point int32, fraction float64) {
	n := len(sb.attached)
	for range max(1, int(fraction*float64(n)+sb.rng.Float64())) {
		k := sb.rng.IntN(n)
		sb.attached[k] = append(sb.attached[k], point)
	}
}

// shareKernel builds kernel probes: run queue, disks, name resolution, third parties, and other waits.
func (sb *serviceBuilder) shareKernel(n int) {
	kinds := []string{"runq", "disk", "dns", "net", "disk", "futex", "disk", "net", "fault", "disk", "pipe", "net"}
	for i := range n {
		// In a large service a probe belongs to one file or socket, and to few functions.
		fraction := 0.1
		if n > 12 {
			fraction = 0.8 / float64(n)
		}
		kind := kinds[i%len(kinds)]
		switch kind {
		case "runq":
			q := sb.kernel("runq", schedule, sb.logUniform(4, 30)*microsecond)
			sb.scheduler = append(sb.scheduler, q)
			sb.attach(q, fraction)
		case "disk":
			sb.attach(sb.kernel("disk", storage, sb.logUniform(0.1, 3)*millisecond), fraction)
		case "dns":
			sb.resolver = append(sb.resolver, sb.kernel("dns", resolve, sb.logUniform(0.3, 2)*millisecond))
		case "net":
			sb.attach(sb.thirdParty(), 0.02)
		default:
			sb.attach(sb.kernel(kind, work, sb.logUniform(5, 200)*microsecond), fraction)
		}
	}
}

func (sb *serviceBuilder) kernel(kind string, act action, mean float64) int32 {
	return sb.newPoint(sb.service, sb.names.probe("kernel.", kind), trace.Internal, cct.Kernel, act, mean,
		0.3+0.7*sb.rng.Float64())
}

// thirdParty builds a CLIENT point for a service without spans, with a socket wait inside it.
func (sb *serviceBuilder) thirdParty() int32 {
	name := sb.names.unique(sb.names.pick(remotes))
	wait := sb.newPoint(sb.service, "kernel.net:"+name, trace.Internal, cct.Kernel, remote,
		sb.logUniform(4, 60)*millisecond, sb.cov())
	called, attrs := sb.nameThirdParty(name)
	client := sb.newPoint(sb.service, called, trace.Client, cct.App, work, 60*microsecond, 0.3)
	sb.points[client].baseline = true
	sb.setCallee(client, -1, attrs)
	sites := []site{{callee: wait, chance: 1}}
	if len(sb.resolver) > 0 {
		lookup := sb.resolver[sb.rng.IntN(len(sb.resolver))]
		sites = []site{{callee: lookup, chance: float32(0.02 + 0.1*sb.rng.Float64())}, {callee: wait, chance: 1}}
	}
	sb.setSites(client, sites)
	return client
}

// shareRuntime builds tracepoints of the runtime: locks, serializers, pools and garbage collection.
func (sb *serviceBuilder) shareRuntime(n int) {
	kinds := []string{"lock", "serialize", "pool", "gc", "lock", "serialize", "pool", "lock"}
	for i := range n {
		fraction := 0.1
		if n > 8 {
			fraction = 0.8 / float64(n)
		}
		switch kind := kinds[i%len(kinds)]; kind {
		case "lock":
			lock := sb.runtime(kind, acquire, sb.logUniform(0.5, 5)*microsecond)
			sb.attach(lock, max(fraction, 2/float64(len(sb.attached))))
		case "serialize":
			codec := sb.runtime(kind, transfer, sb.logUniform(30, 500)*microsecond)
			sb.codecs = append(sb.codecs, codec)
			sb.attach(codec, fraction)
		case "pool":
			sb.attach(sb.runtime(kind, work, sb.logUniform(5, 300)*microsecond), fraction)
		case "gc":
			if i > len(kinds) { // a process has one collector; further points are shorter pauses
				sb.attach(sb.runtime("safepoint", work, sb.logUniform(5, 50)*microsecond), fraction)
				continue
			}
			sb.collector = append(sb.collector, sb.runtime(kind, work, sb.logUniform(1, 8)*millisecond))
		}
	}
}

func (sb *serviceBuilder) runtime(kind string, act action, mean float64) int32 {
	return sb.newPoint(sb.service, sb.names.probe("runtime.", kind), trace.Internal, cct.Runtime, act, mean,
		0.3+0.7*sb.rng.Float64())
}

// shareHelpers builds functions with several callers.
func (sb *serviceBuilder) shareHelpers(n int) {
	for range n {
		h := sb.newPoint(sb.service, "util."+sb.names.function(), trace.Internal, cct.App, work,
			sb.logUniform(10, 300)*microsecond, sb.cov())
		sb.attach(h, min(0.15, 3/float64(len(sb.attached))))
	}
}

// build builds the operations of the service.
func (sb *serviceBuilder) build() {
	for i := range sb.operations {
		sb.entries = append(sb.entries, sb.operation(&sb.operations[i]))
	}
	for i := sb.variables; i > 0; i-- { // the rest of the quota are noise variables
		p := sb.entries[sb.rng.IntN(len(sb.entries))]
		sb.capture(p, noiseVariable, sb.names.unique("flag."+sb.names.pick(resources)))
	}
}
