package query

import (
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// ErrOrder is the refusal for an interval that ends before it starts.
var ErrOrder = refusal.New(refusal.Malformed, "from must be before to", "")

// ParseInterval parses the parameters from and to. Missing parameters are 0. It returns ErrOrder if from is after to.
func ParseInterval(first, last *string) (from, to trace.Nanos, err error) {
	if from, err = ParseInstant("from", first); err != nil {
		return 0, 0, err
	}
	if to, err = ParseInstant("to", last); err != nil {
		return 0, 0, err
	}
	if to != 0 && from > to {
		return 0, 0, ErrOrder
	}
	return from, to, nil
}

// ParseInstant parses the time parameter with the given name, in RFC 3339 or in nanoseconds since 1970. It returns 0
// for nil and "".
func ParseInstant(name string, text *string) (trace.Nanos, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(*text, 10, 64); err == nil && n >= 0 {
		return trace.Nanos(min(n, int64(trace.MaxNanos))), nil
	}
	t, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil || t.Year() < 1970 || t.Year() > LastYear {
		return 0, refusal.New(refusal.Malformed,
			name+": want a time like 2026-01-31T14:05:00Z, or nanoseconds since 1970, until 2254", "")
	}
	return trace.Nanos(t.UnixNano()), nil
}

// LastYear is the last year that fits completely into [trace.Nanos].
const LastYear = 2254

// NotFound returns the refusal for a resource that doesn't exist or has been deleted.
func NotFound(resource string) *refusal.Error {
	return refusal.New(refusal.NotFound, "no such "+resource+"; it may no longer exist", "")
}

// Matches reports whether text contains the query q, ignoring case. Nil and "" match any text.
func Matches(text string, q *string) bool {
	return q == nil || *q == "" || strings.Contains(strings.ToLower(text), strings.ToLower(*q))
}

// Value returns *p, or fallback if p is nil.
func Value[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}
