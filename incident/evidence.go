package incident

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// kind is a kind of evidence against a service. Each kind has its own record, so that a service whose calls once
// changed or failed is still watched as closely for added latency.
type kind uint8

const (
	lost kind = iota // the score
	own
	in // late for its callers
	out
	failing // calls that failed or weren't answered
	unanswered
	silent
	// flow is the share of requests whose calls changed. It doesn't raise an incident on its own, because a deploy
	// changes calls. If the new calls are slower or fail, there is evidence of another kind.
	flow
	added // time of calls that the service makes more often than before; last, because kinds are saved by number
	numKinds
)

// levels holds the level of the evidence against a service, by kind.
type levels [numKinds]float64

// levelsOf returns the levels of s. If there are only a few failures, it relates them to all requests instead of the
// calls, because one or two calls may be most of the calls to a service that is rarely called.
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

// symptoms is a set of ways that requests suffer.
type symptoms uint8

const (
	slower symptoms = 1 << iota
	fails
	stops
)

// symptomsOf returns the symptoms of s, according to the kinds of evidence with a level above the threshold. If only
// the score as a whole is above its threshold, its largest part determines the symptom.
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
		case lost, flow, numKinds: // lost is the sum of others, and flow raises no incident
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
