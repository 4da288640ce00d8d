package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// VersionSeen records when one version of a service was first and last seen.
type VersionSeen struct {
	ingest.ServiceVersion
	First trace.Nanos // start of its first span
	Last  trace.Nanos // arrival of its last span
}

// mostVersions is the maximum number of versions of all services together. The least recently seen are deleted first.
const mostVersions = 4096

// versions holds the known versions of services, to detect deploys.
type versions struct {
	known   []VersionSeen                 // by first appearance
	places  map[ingest.ServiceVersion]int // index in known
	newest  map[trace.Symbol]trace.Symbol // by service
	deploys *annotations                  // receives the detected deploys
}

func newVersions(deploys *annotations) versions {
	return versions{
		places:  make(map[ingest.ServiceVersion]int),
		newest:  make(map[trace.Symbol]trace.Symbol),
		deploys: deploys,
	}
}

// observe adds the versions in seen; see [Core.ObserveVersions]. After the learning period, each new version of a known
// service is a deploy. During the learning period, a new version is a deploy only if it first appeared at least one
// learning period after the first known version, as happens in a recorded past.
func (v *versions) observe(seen []VersionSeen, learned bool, learning time.Duration) {
	sorting.Slice(seen, func(a, b VersionSeen) int {
		return cmp.Or(cmp.Compare(a.First, b.First), compareVersions(a, b))
	})
	for _, x := range seen {
		if i, known := v.places[x.ServiceVersion]; known {
			v.known[i].Last = max(v.known[i].Last, x.Last)
			continue
		}
		if len(v.known) >= 2*mostVersions {
			continue // trim makes room at the end of the epoch
		}
		if before := v.before(x); before != 0 && (learned || x.First.Sub(v.known[0].First) >= learning) {
			v.deploys.detect(x.ServiceVersion, before, x.First)
		}
		v.add(x)
	}
}

// before returns the newest known version of x's service, or 0 if no version is known. If another version started at
// the same time as x, it returns that version's predecessor, so that neither counts as the successor of the other.
func (v *versions) before(x VersionSeen) trace.Symbol {
	for _, d := range slices.Backward(v.deploys.all) {
		if d.At < x.First {
			break
		}
		if d.At == x.First && d.Service == x.Service && d.isDetected() {
			return d.Before
		}
	}
	return v.newest[x.Service]
}

func compareVersions(a, b VersionSeen) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Version, b.Version))
}

func (v *versions) add(x VersionSeen) {
	v.places[x.ServiceVersion] = len(v.known)
	v.known = append(v.known, x)
	v.newest[x.Service] = x.Version
}

// trim deletes the least recently seen versions beyond mostVersions. It is called once at the end of an epoch so that
// the result doesn't depend on how versions are divided among calls to observe.
func (v *versions) trim() {
	over := len(v.known) - mostVersions
	if over <= 0 {
		return
	}
	oldest := sorting.Sorted(slices.Values(v.known),
		func(a, b VersionSeen) int { return cmp.Or(cmp.Compare(a.Last, b.Last), compareVersions(a, b)) })
	for _, x := range oldest[:over] {
		delete(v.places, x.ServiceVersion)
	}
	left := slices.DeleteFunc(v.known, func(x VersionSeen) bool { _, kept := v.places[x.ServiceVersion]; return !kept })
	v.reset(left)
}

// reset replaces the known versions, which must be ordered by first appearance.
func (v *versions) reset(known []VersionSeen) {
	*v = newVersions(v.deploys)
	for _, x := range known {
		v.add(x)
	}
}

// save implements section.
func (v *versions) save(s *savedCore) { s.Versions = v.known }

// restore implements section.
func (v *versions) restore(s *savedCore) error {
	v.reset(s.Versions)
	return nil
}
