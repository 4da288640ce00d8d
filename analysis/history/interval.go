package history

import (
	"math"

	"github.com/sibyl-trace/sibyl/trace"
)

// Interval is the time [From, To).
type Interval struct{ From, To trace.Nanos }

// Contains reports whether t lies within i.
func (i Interval) Contains(t trace.Nanos) bool { return i.From <= t && t < i.To }

// Slices returns the slices from the one that contains From up to, but not including, the one that contains To.
func (i Interval) Slices() Range { return Range{SliceOf(i.From), SliceOf(i.To)} }

// Always returns the interval that contains every time.
func Always() Interval { return Interval{From: math.MinInt64, To: math.MaxInt64} }
