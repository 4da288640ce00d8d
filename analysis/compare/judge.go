package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Judge holds the rules by which the calls of a window are judged against a history.
type Judge struct {
	// rare is the share of the pieces of a history above which values are usual, too, even beyond the fence; 0: no
	// value is.
	rare float64
	// parts is the number of parts into which a window is divided, at least 1. The lowest mean of the parts is compared
	// with the same of each piece of the history, and the lowest share of a shape.
	parts int
	// soft: Suspect.Soft is needed, not only to order suspects with an equal score. It takes most of the time, since
	// nearly every site has some.
	soft bool
}

var (
	// Plain judges the mean in the window. It ranks the causes of a change that is known to have happened.
	Plain = Judge{parts: 1, soft: true}
	// Steady judges by three parts of the window. Only a change that lasts counts, not a burst that ends within one
	// part, and only one that rare pieces of the history do not reach.
	Steady = Judge{rare: rare, parts: history.SteadyParts, soft: true}
	// Brief is like Steady, but without Suspect.Soft.
	Brief = Judge{rare: rare, parts: history.SteadyParts}
)

// lasting reports whether only changes count that last.
func (j Judge) lasting() bool { return j.parts > 1 }

// fence returns the median of values, and their fence: the upper one of Tukey or, if that is higher, the value that
// only rare pieces exceed. It reorders values.
func (j Judge) fence(values []float64) (median, limit float64) {
	if median, limit = Fence(values); j.rare > 0 {
		limit = max(limit, stats.Quantile(values, j.rare))
	}
	return median, limit
}
