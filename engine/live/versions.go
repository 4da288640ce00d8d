package live

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// arrived is which versions of services came since the last mark. They go to the grouper with the next one, so that it knows what came before
// an epoch ended, or a checkpoint was taken, and nothing else.
type arrived struct {
	seen   []engine.VersionSeen
	places map[ingest.ServiceVersion]int // in seen
}

// arrivedVersions is how many versions wait for a mark at most: beyond there is one for them.
const arrivedVersions = 4096

// observe takes the versions of a request that arrived at a time.
func (a *arrived) observe(at trace.Nanos, versions []ingest.ServiceVersion) {
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

// take returns what came and forgets it.
func (a *arrived) take() []engine.VersionSeen {
	seen := a.seen
	a.seen = nil
	clear(a.places)
	return seen
}
