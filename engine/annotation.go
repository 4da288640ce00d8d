package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Annotation is an event that may explain why requests changed, such as a deploy. Sibyl detects deploys itself; all
// other annotations are reported by other systems.
type Annotation struct {
	ID      uint64 `cbor:",omitempty"`
	At      trace.Nanos
	End     trace.Nanos      `cbor:",omitempty"` // 0 if the event has no duration
	Kind    AnnotationKind   `cbor:",omitempty"`
	Source  AnnotationSource `cbor:",omitempty"`
	Service trace.Symbol     // 0 for all services
	Version trace.Symbol     // 0 if unknown
	Before  trace.Symbol     // newest version seen before Version; 0 unless Sibyl detected the deploy
	Text    string           `cbor:",omitempty"`
	Link    string           `cbor:",omitempty"`
	Tags    []string         `cbor:",omitempty"`
}

// AnnotationKind is the kind of an event.
type AnnotationKind uint8

// The kinds of annotations. A KindDeploy annotation means that a version of a service appeared for the first time, or
// that a pipeline reported its deploy. The previous version may still be running.
const (
	KindDeploy AnnotationKind = iota
	KindFlag
	KindChange
	KindOther
)

var annotationKinds = [...]string{"deploy", "flag", "change", "other"}

func (k AnnotationKind) String() string { return annotationKinds[k] }

// AnnotationKindNamed returns the kind with the given name, or KindOther if the name is unknown.
func AnnotationKindNamed(name string) AnnotationKind {
	if i := slices.Index(annotationKinds[:], name); i >= 0 {
		return AnnotationKind(i)
	}
	return KindOther
}

// AnnotationSource is the origin of an annotation.
type AnnotationSource uint8

// The sources of annotations. If an event was both detected and reported, its annotation has the source of the report.
const (
	SourceDetected AnnotationSource = iota
	SourceAPI
	SourceArgoCD
	SourceGitHub
)

var annotationSources = [...]string{"detected", "api", "argocd", "github"}

func (s AnnotationSource) String() string { return annotationSources[s] }

// Report is an annotation from another system, with the names of its service and version.
type Report struct {
	Annotation
	ServiceName string `cbor:",omitempty"`
	VersionName string `cbor:",omitempty"`
}

// NewReport returns a report of x, with the service, version and ID of its annotation set. service and version may be
// empty.
func NewReport(x Annotation, service, version string) *Report {
	x.Service, x.Version = symbolOrNone(service), symbolOrNone(version)
	x.ID = trace.Mix(identify(&x), trace.Mix(uint64(x.Kind), uint64(trace.SymbolOf([]byte(x.Text)))))
	return &Report{x, service, version}
}

func symbolOrNone(text string) trace.Symbol {
	if text == "" {
		return 0
	}
	return trace.SymbolOf([]byte(text))
}

// identify returns the ID of the deploy x, a hash of its service, version and time.
func identify(x *Annotation) uint64 {
	return trace.Mix(trace.Mix(uint64(x.Service), uint64(x.Version)), uint64(x.At))
}

// valid reports whether the kind and source of x are known.
func (x *Annotation) valid() bool {
	return int(x.Kind) < len(annotationKinds) && int(x.Source) < len(annotationSources)
}

// isDetected reports whether x is a deploy that Sibyl detected, even if another system also reported it.
func (x *Annotation) isDetected() bool { return x.Before != 0 }

// Limits on annotations.
const (
	mostAnnotations = 1000             // see dropOne
	repeatedWithin  = time.Minute      // maximum time between duplicate reports of an event
	detectedWithin  = 15 * time.Minute // maximum time between the report of a deploy and the first span of its version
)

// annotations holds the latest annotations.
type annotations struct {
	all   []Annotation // oldest first
	table *trace.Table
}

// report adds x, or merges it with the detected annotation of the same event. It returns false if the event has already
// been reported.
func (a *annotations) report(x *Report) bool {
	a.table.Symbol(x.ServiceName)
	a.table.Symbol(x.VersionName)
	return a.add(x.Annotation)
}

// detect adds the deploy of v at time `at`. `before` is the newest earlier version.
func (a *annotations) detect(v ingest.ServiceVersion, before trace.Symbol, at trace.Nanos) {
	x := Annotation{At: at, Service: v.Service, Version: v.Version, Before: before}
	x.ID = identify(&x)
	a.add(x)
}

func (a *annotations) add(x Annotation) bool {
	for i := range a.all {
		if y := a.all[i]; a.same(&x, &y) {
			if x.Source != SourceDetected && y.Source != SourceDetected {
				return false
			}
			a.all = slices.Delete(a.all, i, i+1)
			x = merge(x, y)
			break
		}
	}
	i := len(a.all)
	for i > 0 && a.all[i-1].At > x.At {
		i--
	}
	a.all = slices.Insert(a.all, i, x)
	if len(a.all) > mostAnnotations {
		a.dropOne()
	}
	return true
}

// dropOne deletes the oldest annotation of the source with the most annotations, so that a flood of reports doesn't
// displace the deploys that Sibyl detected, or the reports of other systems.
func (a *annotations) dropOne() {
	var of [len(annotationSources)]int
	for i := range a.all {
		of[a.all[i].Source]++
	}
	largest := AnnotationSource(slices.Index(of[:], slices.Max(of[:])))
	i := slices.IndexFunc(a.all, func(x Annotation) bool { return x.Source == largest })
	a.all = slices.Delete(a.all, i, i+1)
}

// merge returns the annotation of an event that was both detected and reported, with the ID of y, the older annotation.
func merge(x, y Annotation) Annotation {
	detected, reported := x, y
	if y.isDetected() {
		detected, reported = y, x
	}
	reported.ID = y.ID
	reported.At, reported.Version, reported.Before = detected.At, detected.Version, detected.Before
	return reported
}

// same reports whether the new annotation x and the stored annotation y are about the same event.
func (a *annotations) same(x, y *Annotation) bool {
	if x.Kind != y.Kind || x.Service != y.Service {
		return false
	}
	apart := x.At.Sub(y.At).Abs()
	if x.isDetected() == y.isDetected() {
		return !x.isDetected() && apart <= repeatedWithin && x.Version == y.Version && x.Text == y.Text
	}
	if x.Version == 0 || y.Version == 0 {
		justDetected := x.Source == SourceDetected || y.Source == SourceDetected
		return apart <= detectedWithin && (justDetected || x.Text == y.Text)
	}
	return apart <= detectedWithin && sameVersion(a.table.Text(x.Version), a.table.Text(y.Version))
}

// leastCommit is the minimum length of an abbreviated commit hash.
const leastCommit = 7

// sameVersion reports whether x and y name the same version. 1.8 matches v1.8, and an abbreviated commit hash matches
// the full one.
func sameVersion(x, y string) bool {
	x, y = strings.TrimPrefix(x, "v"), strings.TrimPrefix(y, "v")
	if len(x) > len(y) {
		x, y = y, x
	}
	return x == y || len(x) >= leastCommit && strings.Trim(x, "0123456789abcdef") == "" && strings.HasPrefix(y, x)
}

// Reported returns the stored annotation of the event that x reports. x must have been applied. If the annotation has
// been deleted since, Reported returns the annotation in x.
func (v *View) Reported(x *Report) *Annotation {
	for i := range v.Annotations {
		if y := &v.Annotations[i]; v.annotations.same(&x.Annotation, y) || x.ID == y.ID {
			return y
		}
	}
	return &x.Annotation
}

// save implements section.
func (a *annotations) save(s *savedCore) { s.Annotations = a.all }

// restore implements section.
func (a *annotations) restore(s *savedCore) error {
	a.all = s.Annotations
	for i := range a.all {
		if x := &a.all[i]; x.ID == 0 { // saved by an earlier version, which only had deploys
			x.ID = identify(x)
		}
	}
	return nil
}
