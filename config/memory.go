package config

import (
	"runtime"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
)

// The value of the key memory is one budget. The process itself takes ownBytes, and the rest is divided by these
// shares, in 256ths. A part of the service that has used up its share refuses new entries or drops the oldest ones, and
// counts them. Bodies being read and the buffers of the databases have no share, because they are released within
// seconds. A few smaller parts have fixed limits. A limit on the measured heap covers the rest.
const (
	groupsShare      = 64 // groups and request types
	openShare        = 45 // open traces, and a quarter as much for remembering closed ones
	namesShare       = 29 // the dictionary of the core
	decodersShare    = 8  // the dictionaries of the decoders
	inFlightShare    = 16 // admitted requests that are not yet assembled; as much again for those waiting for the core
	learningShare    = 14 // requests of the learning period; contexts of calls after it
	chartsShare      = 8  // requests by tick
	tracepointsShare = 16 // catalogues of agents and their reports
	sitesShare       = 12 // the history of calls
	operationsShare  = 7  // durations of spans
	wholeShare       = 3  // requests with all attributes
	keptShare        = 5  // requests for comparisons
	parts            = 256
)

// ownBytes is the memory of a process without traffic: a quarter of [MinMemory].
const ownBytes = 16 * mib

// Sizes of entries in bytes, rounded up.
const (
	groupBytes       = 18 << 10 // a large group
	siteBytes        = 5000     // a site with its history
	nameBytes        = 544      // two texts of 64 bytes, an operation, a context and an edge, all in use
	decoderNameBytes = 464      // the same, in a dictionary that does not record whether they are in use
	chartedBytes     = 32 << 10 // a group with requests in as many ticks as are kept between two checkpoints
	contextBytes     = 176      // a context as it appeared
	nodeBytes        = 160      // a node of a tree that was built
	tracepointBytes  = 512      // a tracepoint in package control and in the engine, its texts, and reports about it
	operationBytes   = 7 << 10  // the durations of the spans of an operation in all periods
	keptBytes        = 4300     // a kept request; with many request types there are more than twice as many
)

func (c *Config) share(n int64) int64 { return (c.Memory - ownBytes) / parts * n }

// MaxInFlight returns the limit on the bytes of all requests being read or decoded. The limit leaves room for three of
// the largest requests, because a request takes up to twice its size, once as sent and once uncompressed, and more than
// one sender must make progress. If the maximum size of requests is smaller than the default, more of them fit.
func (c *Config) MaxInFlight() int64 {
	return 3 * max(c.OTLP.MaxRequest, min(mostRequest, c.Memory/requestShare))
}

// OpenTraces returns the options of package assemble for the traces of all shards together.
func (c *Config) OpenTraces() assemble.OnlineOptions {
	return assemble.NewOnlineOptions(c.Assembly.Timeout, c.share(openShare))
}

// limitStatistics sets the limits in o that depend on the memory.
func (c *Config) limitStatistics(o *engine.Options) {
	o.Groups.Groups = int(min(group.DefaultGroups, c.share(groupsShare)/groupBytes))
	o.Sites = int(c.share(sitesShare) / siteBytes)
	o.Contexts = int(c.share(learningShare) / (contextBytes + nodeBytes))
	o.Tracepoints = int(min(mostTracepoints, c.share(tracepointsShare)/tracepointBytes))
	o.Operations = int(min(mostOperations, c.share(operationsShare)/operationBytes))
	o.Kept = min(o.Kept, int(c.share(keptShare)/keptBytes))
	o.EarlyBytes = min(o.EarlyBytes, int(c.share(learningShare)))
}

// IntakeLimits are the limits of package live that depend on the memory.
type IntakeLimits struct {
	InFlight, Heap      int64 // bytes
	Blameless           int64 // bytes
	Names, DecoderNames int   // of each kind
	Decoders            int   // requests that are decoded concurrently
	Charted             int   // groups and request types
	Whole               int   // bytes
}

// IntakeLimits returns the limits of package live that depend on the memory. A tenant leaves one processor to other
// tenants.
func (c *Config) IntakeLimits() IntakeLimits {
	decoders := runtime.GOMAXPROCS(0)
	blameless := int64(0)
	if c.ProcessMemory > 0 {
		blameless = c.share(openShare+inFlightShare) / 4
		decoders = max(1, decoders-1)
	}
	return IntakeLimits{
		InFlight:     c.share(inFlightShare),
		Heap:         max(c.Memory, c.ProcessMemory) / 8 * 5,
		Blameless:    blameless,
		Names:        int(min(mostNames, c.share(namesShare)/nameBytes)),
		DecoderNames: int(min(mostDecoderNames, c.share(decodersShare)/decoderNameBytes/int64(decoders))),
		Decoders:     decoders,
		Charted:      int(min(mostCharted, c.share(chartsShare)/chartedBytes)),
		Whole:        int(min(mostWhole, c.share(wholeShare))),
	}
}

// Limits that apply regardless of the memory.
const (
	mostNames        = 1 << 21 // as trace.DefaultLimit, up to which tables are decoded
	mostDecoderNames = 1 << 18
	mostCharted      = 2048
	mostTracepoints  = 1_000_000
	mostOperations   = 8192
	mostWhole        = 24 * mib
)
