package engine

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Deploy says that a version of a service came where another one was. The other may go on running beside it.
type Deploy struct {
	At              trace.Nanos // when the first spans of the version arrived
	Service         trace.Symbol
	Version, Before trace.Symbol // Before is the version that was the service's newest until then
}

// VersionSeen is a version of a service with the times at which spans of it arrived first and last.
type VersionSeen struct {
	ingest.ServiceVersion
	First, Last trace.Nanos
}

// Bounds of what is known about versions.
const (
	mostVersions = 4096 // of all services together; those that were not seen for longest are forgotten
	mostDeploys  = 1000 // the oldest are forgotten
)

// versions knows which versions of services there are, to tell new ones.
type versions struct {
	known   []VersionSeen                 // in the order in which they came
	places  map[ingest.ServiceVersion]int // in known
	newest  map[trace.Symbol]trace.Symbol // of a service
	deploys []Deploy                      // oldest first
}

func newVersions() versions {
	return versions{places: make(map[ingest.ServiceVersion]int), newest: make(map[trace.Symbol]trace.Symbol)}
}

// ObserveVersions takes the versions of services seen since the last call, each once, in any order, and sorts them. A version that comes after
// the learning period is deployed, unless it is the first that is known of its service.
func (c *Core) ObserveVersions(seen []VersionSeen) {
	slices.SortFunc(seen, func(a, b VersionSeen) int { return cmp.Or(cmp.Compare(a.First, b.First), compareVersions(a, b)) })
	v := &c.versions
	for _, x := range seen {
		if i, known := v.places[x.ServiceVersion]; known {
			v.known[i].Last = max(v.known[i].Last, x.Last)
			continue
		}
		if len(v.known) >= 2*mostVersions {
			continue // until the epoch ends, when there is room again
		}
		if before := v.newest[x.Service]; before != 0 && c.learned {
			v.deploys = append(v.deploys, Deploy{x.First, x.Service, x.Version, before})
			v.deploys = v.deploys[max(0, len(v.deploys)-mostDeploys):]
		}
		v.add(x)
	}
}

func compareVersions(a, b VersionSeen) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Version, b.Version))
}

func (v *versions) add(x VersionSeen) {
	v.places[x.ServiceVersion] = len(v.known)
	v.known = append(v.known, x)
	v.newest[x.Service] = x.Version
}

// forget makes room. It is called when an epoch ends, not when a version comes: how often versions are told of must not matter.
func (v *versions) forget() {
	over := len(v.known) - mostVersions
	if over <= 0 {
		return
	}
	oldest := slices.SortedFunc(slices.Values(v.known), func(a, b VersionSeen) int { return cmp.Or(cmp.Compare(a.Last, b.Last), compareVersions(a, b)) })
	for _, x := range oldest[:over] {
		delete(v.places, x.ServiceVersion)
	}
	left := slices.DeleteFunc(v.known, func(x VersionSeen) bool { _, kept := v.places[x.ServiceVersion]; return !kept })
	v.restore(left, v.deploys)
}

// restore makes v know the given versions, in the order in which they came, and deploys.
func (v *versions) restore(known []VersionSeen, deploys []Deploy) {
	*v = newVersions()
	v.deploys = deploys
	for _, x := range known {
		v.add(x)
	}
}

// Deploys returns the versions that came after the learning period, the oldest first, at most the latest thousand. The slice is the core's own.
func (c *Core) Deploys() []Deploy { return c.versions.deploys }
