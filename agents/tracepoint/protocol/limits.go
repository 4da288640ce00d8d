package protocol

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version is the version of the protocol: the value of every Protocol field.
const Version = 1

// The HTTP paths of an agent are Path + id, Path + id + PlanPath and Path + id + StatusPath.
const (
	Path       = "/agent/v1/agents/"
	PlanPath   = "/plan"
	StatusPath = "/status"
)

// The names of the configuration files that carry the same JSON over OpAMP. The remote configuration contains the plan,
// and the effective configuration contains the catalogue.
const (
	ConfigPlan      = "sibyl.tracepoints"
	ConfigCatalogue = "sibyl.catalogue"
)

// Limits on messages. A message that exceeds a limit is invalid.
const (
	MaxBody      = 8 << 20 // bytes of a body after decompression
	MaxText      = 256     // bytes of an ID, a name or a value
	MaxReason    = 1024    // bytes of an explanation
	MaxResource  = 128     // attributes of a resource
	MaxCatalogue = 100_000 // tracepoints of a catalogue
	PageSize     = 2000    // tracepoints per page of a catalogue; the last page may have fewer
	MaxEnabled   = 10_000  // tracepoints of an arm per agent
	MaxArms      = 16
	MaxArmName   = 16 // characters
	MaxFilters   = 64 // per plan, one for each bit of Decision.Filters
	MaxOutcomes  = 10_000
	MaxStacks    = 256
	MaxFrames    = 20_000 // of all stacks of a status

	MaxStackFrames = 2048 // of an operation

	MaxStackRequests = 1_000_000
	MaxStackNanos    = 1e15 // of a frame
	MaxLease         = 3600 // seconds
	MaxCPU           = 1e9  // nanoseconds per hit
	MaxHitBytes      = 1 << 20
	MaxPlanVersion   = 1<<53 - 1 // every JSON implementation represents integers up to here exactly
)

// ErrVersion is the error for a message of an unsupported protocol version.
var ErrVersion = errors.New("not version 1 of the tracepoint protocol")

// InvalidError is the error for an invalid field of a message.
type InvalidError struct {
	Field  string // path in the JSON: "arms[1].tracepoints[0].id"
	Reason string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func checkVersion(protocol int) error {
	if protocol != Version {
		return fmt.Errorf("protocol: %d: %w", protocol, ErrVersion)
	}
	return nil
}

// checkText returns an error unless s, the value of field, consists of at most limit bytes of printable characters.
func checkText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return invalid(field, "%d bytes exceed the limit of %d", len(s), limit)
	case !utf8.ValidString(s):
		return invalid(field, "not valid UTF-8")
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return invalid(field, "%q contains a character that is not printable", s)
		}
	}
	return nil
}

// Printable truncates s to limit bytes and replaces characters that are not printable with question marks, so that text
// from other systems is valid in a message.
func Printable(s string, limit int) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s[:min(len(s), limit)])
}

// checkName checks that s, the value of field, is valid text of 1 to MaxText bytes.
func checkName(field, s string) error {
	if s == "" {
		return invalid(field, "missing")
	}
	return checkText(field, s, MaxText)
}

func checkCount(field string, n, limit int) error {
	if n > limit {
		return invalid(field, "%d entries exceed the limit of %d", n, limit)
	}
	return nil
}

// checkRange returns an error unless x, the value of field, is at least `least` and at most `most`. NaN is out of
// range.
func checkRange(field string, x, least, most float64) error {
	if math.IsNaN(x) || x < least || x > most {
		return invalid(field, "%v is not in [%v, %v]", x, least, most)
	}
	return nil
}

// checkHash returns an error unless s, the value of field, has the format of a hash.
func checkHash(field, s string) error {
	if len(s) != hashDigits {
		return invalid(field, "%q is not %d hexadecimal digits", s, hashDigits)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return invalid(field, "%q is not %d hexadecimal digits", s, hashDigits)
		}
	}
	return nil
}
