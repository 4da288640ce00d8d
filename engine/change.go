package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Settings are the options that may change while a [Core] works. They count from the end of the epoch on.
type Settings struct {
	Watch    detect.WatchOptions
	Budget   search.Budget
	Strategy string
	Explore  float64

	Retention time.Duration
}

// Settings returns those of o that may change.
func (o *Options) Settings() Settings {
	return Settings{Watch: o.Watch, Budget: o.Budget, Strategy: o.Strategy, Explore: o.Explore, Retention: o.Retention}
}

// Change is something from outside, beside traces, that decisions depend on. It is one record of the journal, so that decisions stay a
// function of that. Exactly one field is set, By aside.
type Change struct {
	Settings *Settings        `json:"settings,omitempty"`
	Wish     *search.Wish     `json:"wish,omitempty"`     // in place of what was wished for the same tracepoint before
	Withdraw trace.Symbol     `json:"withdraw,omitempty"` // the wish for this tracepoint
	By       string           `json:"by,omitempty"`       // who withdraws
	Feedback *search.Feedback `json:"feedback,omitempty"`
}

// Append appends the encoding of x to b.
func (x *Change) Append(b []byte) []byte {
	data, err := json.Marshal(x)
	if err != nil {
		panic(fmt.Sprintf("engine: a change that is no plain value: %v", err))
	}
	return append(b, data...)
}

// DecodeChange returns the change that [Change.Append] wrote, which takes all of b. An error wraps ErrCorrupt.
func DecodeChange(b []byte) (x Change, err error) {
	if err := json.Unmarshal(b, &x); err != nil {
		return Change{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if x.Wish != nil && x.Wish.Kind > search.Forbid {
		return Change{}, fmt.Errorf("%w: no such wish", ErrCorrupt)
	}
	return x, nil
}

// MostWishes bounds what people may have decided about at a time.
const MostWishes = 10_000

// Apply makes a change. It reports false if there was nothing to change, or no room.
func (c *Core) Apply(x *Change) bool {
	switch {
	case x.Settings != nil:
		s := x.Settings
		c.options.Watch, c.options.Budget, c.options.Strategy, c.options.Explore = s.Watch, s.Budget, s.Strategy, s.Explore
		c.options.Retention = s.Retention
		return true
	case x.Wish != nil:
		return c.wish(*x.Wish)
	case x.Feedback != nil:
		c.hear(x.Feedback)
		return true
	}
	withdrawn := c.withdraw(x.Withdraw)
	if withdrawn {
		c.said(x.By, "withdraws what was decided about", x.Withdraw)
	}
	return withdrawn
}

// wishVerbs say what somebody does who makes a wish, by its kind.
var wishVerbs = [...]string{search.Enable: "enables", search.Pin: "pins", search.Forbid: "forbids"}

// wish takes what a person decided about a tracepoint, in place of what was decided before. It reports whether there was room.
func (c *Core) wish(w search.Wish) bool {
	c.withdraw(w.Tracepoint)
	if len(c.state.Wishes) >= MostWishes {
		return false
	}
	c.state.Wishes = append(c.state.Wishes, w)
	c.said(w.By, wishVerbs[w.Kind], w.Tracepoint)
	return true
}

// withdraw takes back what a person decided about a tracepoint. It reports whether there was anything.
func (c *Core) withdraw(tracepoint trace.Symbol) bool {
	var left []search.Wish // of its own: what Next returned is not changed
	for _, w := range c.state.Wishes {
		if w.Tracepoint != tracepoint {
			left = append(left, w)
		}
	}
	withdrawn := len(left) < len(c.state.Wishes)
	c.state.Wishes = left
	return withdrawn
}
