package live

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// versionBuffer holds the versions of services that arrived since the last barrier. The next barrier carries them to
// the core loop, so that the state at the end of an epoch, or in a checkpoint, contains exactly the versions that
// arrived before it.
type versionBuffer struct {
	seen   []engine.VersionSeen
	places map[ingest.ServiceVersion]int // index in seen
}

// maxBufferedVersions is the number of buffered versions at which the sequencer sends a barrier to pass them on.
const maxBufferedVersions = 4096

// observe adds the versions in b, a request that arrived at time `at`.
func (a *versionBuffer) observe(at trace.Nanos, b *ingest.Batch) {
	for _, v := range b.Versions {
		first := startOf(v, at)
		if i, known := a.places[v.ServiceVersion]; known {
			a.seen[i].First, a.seen[i].Last = min(a.seen[i].First, first), at
			continue
		}
		if a.places == nil {
			a.places = make(map[ingest.ServiceVersion]int)
		}
		a.places[v.ServiceVersion] = len(a.seen)
		a.seen = append(a.seen, engine.VersionSeen{ServiceVersion: v.ServiceVersion, First: first, Last: at})
	}
}

// maxDelay is the maximum age of a version's first span on arrival. If the span is older, we assume that its clock is
// wrong.
const maxDelay = 7 * group.Day

// startOf returns the start of v, which arrived at time `at`: v.First, or `at` if v.First is unknown, later than `at`,
// or more than maxDelay earlier. Versions in a recorded past start long before they arrive.
func startOf(v ingest.VersionStart, at trace.Nanos) trace.Nanos {
	if v.First == 0 || at.Sub(v.First) > maxDelay {
		return at
	}
	return min(at, v.First)
}

// take returns the versions and empties the buffer.
func (a *versionBuffer) take() []engine.VersionSeen {
	seen := a.seen
	a.seen = nil
	clear(a.places)
	return seen
}
