package config

import (
	"runtime"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
)

// The key memory is one budget, which these shares divide, in sixteenths; they add up to less than the whole. A part
// that has used up its share refuses new entries, or drops the oldest ones, and counts them. Bodies being read and the
// buffers of the databases have no share, because they leave within seconds. A few smaller parts have fixed limits. The
// measured heap is the last limit.
const (
	groupsShare   = 5 // groups and request types with their contexts
	openShare     = 3 // open traces; a quarter as much again remembers closed ones
	namesShare    = 2 // the dictionary of the core
	decodersShare = 1 // the dictionaries of the decoders
	inFlightShare = 1 // requests that are admitted but not yet assembled, and again those waiting for the core
	learningShare = 1 // requests of the learning period
	chartsShare   = 1 // requests by tick
	sixteenths    = 16
)

// Sizes of entries in bytes, rounded up.
const (
	groupBytes   = 20 << 10 // a large group with its contexts
	siteBytes    = 32 << 10 // a site with its history, and its comparison at the end of an epoch
	nameBytes    = 512      // a text of 128 bytes with an operation, a context and an edge
	chartedBytes = 64 << 10 // a group with requests in each tick
)

func (c *Config) share(n int64) int64 { return c.Memory * n / sixteenths }

// MaxInFlight returns the limit on the bytes of all requests being read or decoded. There is room for three of the
// largest requests, because a request takes up to twice its size, as sent and uncompressed, and more than one sender
// must make progress. If the maximum size of requests is smaller than the default, there is room for more of them.
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
	o.Sites = int(c.Memory / siteBytes)
	o.EarlyBytes = min(engine.DefaultOptions().EarlyBytes, int(c.share(learningShare)))
}

// IntakeLimits are the limits of package live that depend on the memory.
type IntakeLimits struct {
	InFlight, Heap      int64 // bytes
	Names, DecoderNames int   // of each kind
	Charted             int   // groups and request types
}

// IntakeLimits returns the limits of package live.
func (c *Config) IntakeLimits() IntakeLimits {
	decoders := int64(runtime.GOMAXPROCS(0))
	return IntakeLimits{
		InFlight:     c.share(inFlightShare),
		Heap:         c.Memory / 8 * 5,
		Names:        int(min(mostNames, c.share(namesShare)/nameBytes)),
		DecoderNames: int(min(mostDecoderNames, c.share(decodersShare)/nameBytes/decoders)),
		Charted:      int(min(mostCharted, c.share(chartsShare)/chartedBytes)),
	}
}

// Limits however much memory there is.
const (
	mostNames        = 1 << 20
	mostDecoderNames = 1 << 18
	mostCharted      = 2048
)
