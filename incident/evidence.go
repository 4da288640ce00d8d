package incident

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// kind is a kind of evidence against a service. Each kind has a record of its own, so that a service that once made
// other calls, or failed, is as closely watched for added latency as before.
type kind uint8

const (
	lost kind = iota // the score
	own
	in // late for its callers
	out
	failing // calls that failed or got no answer
	unanswered
	silent
	// flow is the part of requests whose calls changed. It raises nothing by itself: a new version makes other calls,
	// and if these are slower or fail, they are evidence of another kind.
	flow
	added // time of calls that the service makes more often than before; last, so that saved records keep their kinds
	numKinds
)

// levels are the numbers by which a service is judged, by kind.
type levels [numKinds]float64

// levelsOf returns the levels of a suspect. A few failures count among all requests, since one or two may be most of
// the calls to a service that is rarely called.
func levelsOf(s *compare.Suspect) levels {
	failures := 1.0
	if s.Failures >= leastFailures && s.Calls > 0 {
		failures = 1 / s.Calls
	}
	return levels{
		lost:       s.Score,
		own:        s.Own,
		in:         s.In + s.Rest,
		out:        s.Out,
		failing:    failures * (s.Errors + s.Unanswered),
		unanswered: failures * s.Unanswered,
		silent:     s.Silent,
		flow:       s.Shape,
		added:      s.Added,
	}
}

// symptoms is a set of things that happen to requests.
type symptoms uint8

const (
	slower symptoms = 1 << iota
	fails
	stops
)

// symptomsOf returns the symptoms in the evidence against a suspect whose level of a kind is above its threshold. A
// score that only its sum raises counts as its largest part.
func symptomsOf(s *compare.Suspect, above func(k kind, level float64) bool) (all symptoms) {
	raised := false
	for k, level := range levelsOf(s) {
		k := kind(k)
		if k == flow || level <= 0 || !above(k, level) {
			continue
		}
		raised = true
		switch k {
		case own, in, out, added:
			all |= slower
		case failing, unanswered:
			all |= fails
		case silent:
			all |= stops
		case lost, flow, numKinds: // lost is the sum of others, and flow raises nothing
		}
	}
	if !raised || all != 0 {
		return all
	}
	switch time, failed := s.AddedTime(), s.Errors+s.Unanswered; {
	case s.Silent > max(time, failed):
		return stops
	case failed > time:
		return fails
	}
	return slower
}

// window is the evidence of one epoch.
type window struct {
	end      trace.Nanos
	requests uint64
	scores   []score // above 0
}

// score holds the levels of a service in a window.
type score struct {
	service trace.Symbol
	levels
}
