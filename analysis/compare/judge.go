package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Judge holds the rules for judging the calls of a window against a history.
type Judge struct {
	// rare is a quantile of the pieces of a history. Values up to this quantile are usual, even if they exceed the
	// fence. 0 means that only the fence counts.
	rare float64
	// parts is the number of parts of a window, at least 1. The lowest mean of the parts is compared with the lowest
	// mean of the parts of each piece of the history, and likewise the lowest share of a shape.
	parts int
	// soft means that Suspect.Soft is always computed, not only to order suspects with equal scores. This takes most of
	// the time, because nearly every site has a value.
	soft bool
}

var (
	// Plain judges the mean in the window. It ranks the causes of a change that is known to have happened.
	Plain = Judge{parts: 1, soft: true}
	// Steady judges by three parts of the window. A change counts only if it lasts, unlike a burst that ends within one
	// part, and only if rare pieces of the history don't reach it.
	Steady = Judge{rare: rare, parts: history.SteadyParts, soft: true}
	// Brief is like Steady, but computes Suspect.Soft only to order suspects with equal scores.
	Brief = Judge{rare: rare, parts: history.SteadyParts}
)

// lasting reports whether changes count only if they last.
func (j Judge) lasting() bool { return j.parts > 1 }

// fence returns the median of values, and their fence: Tukey's upper fence or, if it is higher, the value that only
// rare pieces exceed. It reorders values.
func (j Judge) fence(values []float64) (median, limit float64) {
	if median, limit = Fence(values); j.rare > 0 {
		limit = max(limit, stats.Quantile(values, j.rare))
	}
	return median, limit
}
