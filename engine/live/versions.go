package live

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// versionBuffer holds the versions of services that arrived since the last barrier. They pass to the core loop with the
// next one, so that the state at an end of an epoch, or in a checkpoint, has exactly the versions that arrived before.
type versionBuffer struct {
	seen   []engine.VersionSeen
	places map[ingest.ServiceVersion]int // index in seen
}

// maxBufferedVersions is the number of versions at which a barrier is sent for them.
const maxBufferedVersions = 4096

// observe adds the versions of a request that arrived at a time.
func (a *versionBuffer) observe(at trace.Nanos, versions []ingest.ServiceVersion) {
	for _, v := range versions {
		if i, known := a.places[v]; known {
			a.seen[i].Last = at
			continue
		}
		if a.places == nil {
			a.places = make(map[ingest.ServiceVersion]int)
		}
		a.places[v] = len(a.seen)
		a.seen = append(a.seen, engine.VersionSeen{ServiceVersion: v, First: at, Last: at})
	}
}

// take returns the versions and empties the buffer.
func (a *versionBuffer) take() []engine.VersionSeen {
	seen := a.seen
	a.seen = nil
	clear(a.places)
	return seen
}
