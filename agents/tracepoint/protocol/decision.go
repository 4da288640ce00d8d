package protocol

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// TraceStateKey is the key under which the tracestate (W3C Trace Context) of a request carries its [Decision].
const TraceStateKey = "sibyl"

// Keys of span attributes.
const (
	KeyTracepoint = "sibyl.tracepoint.id" // on every span outside the baseline: Tracepoint.ID
	KeyPlan       = "sibyl.plan"          // on the first span of each service: version of the plan applied there, or 0
	KeyArm        = "sibyl.arm"           // on the first span of each service: name of the arm, if any
)

// Decision records the first agent's decision about a request. All other agents follow it, so that the request is
// instrumented consistently. Its text form in the tracestate is "version", "version-arm" or "version-arm-filters", like
// "17-b". The filters are in hexadecimal digits.
type Decision struct {
	Version int64  // of the plan; 0 if the first agent had no plan, so that only the baseline is enabled
	Arm     string // may be empty
	Filters uint64 // bit i is set if the request matches Plan.Filters[i]
}

// ParseDecision parses the text form of a decision. It reports whether s is valid.
func ParseDecision(s string) (d Decision, ok bool) {
	version, rest, hasArm := strings.Cut(s, "-")
	arm, filters, hasFilters := strings.Cut(rest, "-")
	n, err := strconv.ParseUint(version, 10, 53)
	if err != nil || hasArm && !validArm(arm) {
		return Decision{}, false
	}
	d = Decision{Version: int64(n), Arm: arm}
	if hasFilters {
		if d.Filters, err = strconv.ParseUint(filters, 16, 64); err != nil {
			return Decision{}, false
		}
	}
	return d, true
}

// String returns the text form for the tracestate.
func (d Decision) String() string {
	b := strconv.AppendInt(make([]byte, 0, 40), d.Version, 10)
	if d.Arm != "" {
		b = append(append(b, '-'), d.Arm...)
		if d.Filters != 0 {
			b = strconv.AppendUint(append(b, '-'), d.Filters, 16)
		}
	}
	return string(b)
}

// Randomness is a uniformly distributed value derived from the trace ID of a request. It determines the arm of the
// request, and the rates that select it. All agents derive the same value.
type Randomness uint64

// RandomnessOf returns the randomness of the request with the given trace ID.
func RandomnessOf(traceID [16]byte) Randomness {
	return Randomness(mix64(binary.BigEndian.Uint64(traceID[:8]) ^ mix64(binary.BigEndian.Uint64(traceID[8:]))))
}

// Arm returns the index in p.Arms of the request's arm. This is the first arm whose cumulative share exceeds r,
// interpreted as a fraction in [0, 1). It returns -1 if the request has no arm.
func (r Randomness) Arm(p *Plan) int {
	x, sum := unitInterval(uint64(r)), 0.0
	for i := range p.Arms {
		if sum += p.Arms[i].Share; x < sum {
			return i
		}
	}
	return -1
}

// Passes reports whether a tracepoint with the given rate, in [0, 1], is enabled for the request. A request that passes
// at one rate passes at every higher rate. The result is independent of the request's arm.
func (r Randomness) Passes(rate float64) bool {
	return rate >= 1 || unitInterval(mix64(uint64(r))) < rate
}

// unitInterval maps the upper 53 bits of x to a number in [0, 1).
func unitInterval(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// mix64 is one step of SplitMix64 (Steele, Lea, Flood 2014) with state x.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
