// Package decisionlog identifies and finds stored decisions.
package decisionlog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// ID identifies a decision by the end of its epoch and its index within the epoch.
type ID struct {
	At    trace.Nanos
	index int
}

// String returns the ID in the form used by the contract.
func (id ID) String() string { return fmt.Sprintf("%d-%d", id.At, id.index) }

// less reports whether id is earlier in the log than other.
func (id ID) less(other ID) bool {
	return id.At < other.At || id.At == other.At && id.index < other.index
}

// ParseID parses a text returned by String. ok is false if text has another form.
func ParseID(text string) (id ID, ok bool) {
	at, index, found := strings.Cut(text, "-")
	n, err := strconv.ParseInt(at, 10, 64)
	i, indexErr := strconv.Atoi(index)
	return ID{trace.Nanos(n), i}, found && err == nil && indexErr == nil && n > 0 && n < int64(trace.MaxNanos) && i >= 0
}

// Logged is a decision with its ID.
type Logged struct {
	ID       ID
	Decision *search.Decision
}

// WithIDs returns decisions with their IDs. decisions must consist of complete epochs in the order of the log.
func WithIDs(decisions []search.Decision) []Logged {
	all := make([]Logged, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		all[i] = Logged{ID{d.At, 0}, d}
		if i > 0 && all[i-1].ID.At == d.At {
			all[i].ID.index = all[i-1].ID.index + 1
		}
	}
	return all
}

// Reader reads decisions. [store.Decisions] implements it.
type Reader interface {
	// Between returns at least limit decisions in [from, to), or all of them if there are fewer, oldest first. It
	// returns whole epochs: the first ones, or the last ones if newest is true.
	Between(from, to trace.Nanos, limit int, newest bool) ([]search.Decision, error)
}

// Query selects decisions.
type Query struct {
	From, To trace.Nanos    // the epoch ends in [From, To); if To is 0, there is no upper limit
	Subject  search.Subject // only decisions about it; zero: all
	Before   ID             // only earlier decisions; zero: all
	Limit    int            // maximum number
}

// Limits on a search through the log. The next page continues with older decisions.
const (
	readAtOnce = 1000 // decisions per read of the store
	maxReads   = 20
)

// Find returns the decisions that q selects, latest first, and the value of q.Before for the next page, or nil if this
// is the last page. It stops after maxReads reads, so a page that isn't the last may have fewer than q.Limit decisions.
func Find(ctx context.Context, log Reader, q Query) (found []Logged, next *ID, err error) {
	to := q.To
	if to == 0 {
		to = trace.MaxNanos
	}
	if q.Before.At > 0 {
		to = min(to, q.Before.At+1)
	}
	for range maxReads {
		decisions, err := log.Between(q.From, to, readAtOnce, true)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range slices.Backward(WithIDs(decisions)) {
			if q.Before.At > 0 && !d.ID.less(q.Before) || !q.Subject.IsZero() && d.Decision.Subject != q.Subject {
				continue
			}
			if len(found) == q.Limit {
				return found, &found[q.Limit-1].ID, nil
			}
			found = append(found, d)
		}
		if len(decisions) < readAtOnce {
			return found, nil, nil
		}
		to = decisions[0].At
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	return found, &ID{to, 0}, nil
}

// Get returns a slice that contains only the decision with the given ID, or an empty slice if there is no such
// decision.
func Get(log Reader, id ID) ([]Logged, error) {
	decisions, err := log.Between(id.At, id.At+1, readAtOnce, false)
	if err != nil || id.index >= len(decisions) {
		return nil, err
	}
	return WithIDs(decisions)[id.index : id.index+1], nil
}
