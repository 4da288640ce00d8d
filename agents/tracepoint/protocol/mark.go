package protocol

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// TraceStateKey is the key of the tracestate (W3C Trace Context) under which a request carries its [Mark].
const TraceStateKey = "sibyl"

// Attributes of spans.
const (
	KeyTracepoint = "sibyl.tracepoint.id" // of spans outside the baseline: Tracepoint.ID
	KeyPlan       = "sibyl.plan"          // of the first span of each service: version of the plan that applied there; 0: none did
	KeyArm        = "sibyl.arm"           // of the first span of each service: the arm; missing: none
)

// Mark is what the first agent decided about a request and the others keep to, so that the request is instrumented everywhere
// alike. In the tracestate it is "version", "version-arm" or "version-arm-filters", the latter in hexadecimal digits: "17-b".
type Mark struct {
	Version int64  // of the plan; 0: the first agent had none, and nothing is on for the request
	Arm     string // "": none
	Filters uint64 // bit i: the request fits Plan.Filters[i]
}

// ParseMark returns the mark that s is, and whether it is one.
func ParseMark(s string) (m Mark, ok bool) {
	version, rest, hasArm := strings.Cut(s, "-")
	arm, filters, hasFilters := strings.Cut(rest, "-")
	n, err := strconv.ParseUint(version, 10, 53)
	if err != nil || hasArm && !validArm(arm) {
		return Mark{}, false
	}
	m = Mark{Version: int64(n), Arm: arm}
	if hasFilters {
		if m.Filters, err = strconv.ParseUint(filters, 16, 64); err != nil {
			return Mark{}, false
		}
	}
	return m, true
}

// String returns what goes into the tracestate.
func (m Mark) String() string {
	b := strconv.AppendInt(make([]byte, 0, 40), m.Version, 10)
	if m.Arm != "" {
		b = append(append(b, '-'), m.Arm...)
		if m.Filters != 0 {
			b = strconv.AppendUint(append(b, '-'), m.Filters, 16)
		}
	}
	return string(b)
}

// Draw is the lot of a request: which arm it gets and which rates let it pass. Every agent that knows the trace id draws the
// same.
type Draw uint64

// DrawOf returns the lot of the request with the given trace id.
func DrawOf(traceID [16]byte) Draw {
	return Draw(scramble(binary.BigEndian.Uint64(traceID[:8]) ^ scramble(binary.BigEndian.Uint64(traceID[8:]))))
}

// Arm returns the index in p.Arms of the arm that the request gets: the first with which the shares add up to more than the
// lot, as a fraction of all lots. It is -1 if none does.
func (d Draw) Arm(p *Plan) int {
	lot, sum := fraction(uint64(d)), 0.0
	for i := range p.Arms {
		if sum += p.Arms[i].Share; lot < sum {
			return i
		}
	}
	return -1
}

// Passes reports whether the request is among the given share, in [0, 1], of an arm's requests. Those that pass at one rate
// pass at every higher one. It does not depend on which arm the request got.
func (d Draw) Passes(rate float64) bool {
	return rate >= 1 || fraction(scramble(uint64(d))) < rate
}

// fraction returns the upper 53 bits of x as a number in [0, 1).
func fraction(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// scramble is the finalizer of SplitMix64 (Steele, Lea, Flood 2014) on x and one step of its sequence.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Matches reports whether a request that enters a service with a span of the given name and kind fits f. The function
// attribute returns the text of an attribute that the span has at its start, and whether it has it.
func (f *Filter) Matches(service, operation string, kind SpanKind, attribute func(key string) (string, bool)) bool {
	if f.Service != "" && f.Service != service || f.Operation != "" && f.Operation != operation || f.SpanKind != "" && f.SpanKind != kind {
		return false
	}
	for k, want := range f.Attributes {
		if got, ok := attribute(k); !ok || got != want {
			return false
		}
	}
	return true
}

// FilterBit returns the bit that the Filters of a request's mark must have; 0: any request will do.
func (t *Enabled) FilterBit() uint64 {
	if t.Filter == 0 {
		return 0
	}
	return 1 << (t.Filter - 1)
}
