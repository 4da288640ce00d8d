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

// Path is where agents are found over HTTP: Path + id, Path + id + PlanPath, Path + id + StatusPath.
const (
	Path       = "/agent/v1/agents/"
	PlanPath   = "/plan"
	StatusPath = "/status"
)

// Over OpAMP the same JSON goes under these names of configurations: plans in AgentConfigMap, catalogues in the effective one.
const (
	ConfigPlan      = "sibyl.tracepoints"
	ConfigCatalogue = "sibyl.catalogue"
)

// What a message may hold at most. A message beyond a limit is not valid.
const (
	MaxBody        = 8 << 20 // bytes of a body, decompressed
	MaxText        = 256     // bytes of an id, a name, a value
	MaxReason      = 1024    // bytes of an explanation
	MaxResource    = 128     // attributes of a resource
	MaxCatalogue   = 100_000 // tracepoints of a catalogue
	PageSize       = 2000    // tracepoints of every page of a catalogue but the last
	MaxEnabled     = 10_000  // tracepoints of an arm, for one agent
	MaxArms        = 16
	MaxArmName     = 16 // characters
	MaxFilters     = 64 // of a plan: the bits of Mark.Filters
	MaxOutcomes    = 10_000
	MaxLease       = 3600 // seconds
	MaxCPU         = 1e9  // nanoseconds a hit
	MaxHitBytes    = 1 << 20
	MaxPlanVersion = 1<<53 - 1 // what every JSON reader holds exactly
)

// ErrVersion says that a message is of another version of the protocol.
var ErrVersion = errors.New("not version 1 of the tracepoint protocol")

// InvalidError says what in a message is not as it must be.
type InvalidError struct {
	Field string // as in JSON: "arms[1].tracepoints[0].id"
	Why   string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Why }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Why: fmt.Sprintf(format, args...)}
}

func checkVersion(protocol int) error {
	if protocol != Version {
		return fmt.Errorf("protocol: %d: %w", protocol, ErrVersion)
	}
	return nil
}

// checkText returns an error unless s is a text of printable characters of at most limit bytes.
func checkText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return invalid(field, "%d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return invalid(field, "not UTF-8")
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return invalid(field, "%q has a character that cannot be printed", s)
		}
	}
	return nil
}

// Printable returns what of s fits into limit bytes, with a question mark for all that cannot be printed: a text that comes from elsewhere as a
// message may hold it.
func Printable(s string, limit int) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s[:min(len(s), limit)])
}

// checkName is checkText for what must not be empty.
func checkName(field, s string) error {
	if s == "" {
		return invalid(field, "missing")
	}
	return checkText(field, s, MaxText)
}

func checkCount(field string, n, limit int) error {
	if n > limit {
		return invalid(field, "%d of them, at most %d are allowed", n, limit)
	}
	return nil
}

// checkRange returns an error unless x is a number in [least, most].
func checkRange(field string, x, least, most float64) error {
	if math.IsNaN(x) || x < least || x > most {
		return invalid(field, "%v is not in [%v, %v]", x, least, most)
	}
	return nil
}

// checkHash returns an error unless s is a hash as [HashCatalogue] and [HashPlan] return them.
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
