package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Settings are the options that may change while a [Core] works. They count from the end of the epoch on.
type Settings struct {
	Watch    analysis.WatchOptions
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
	Override *search.Override `json:"wish,omitempty"`     // replaces an earlier one of the same tracepoint
	Withdraw trace.Symbol     `json:"withdraw,omitempty"` // whose override ends
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

// DecodeChange returns the change that [Change.Append] wrote, which takes all of b. An error wraps [codec.ErrCorrupt].
func DecodeChange(b []byte) (x Change, err error) {
	if err := json.Unmarshal(b, &x); err != nil {
		return Change{}, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	if x.Override != nil && x.Override.Kind > search.Forbid {
		return Change{}, fmt.Errorf("%w: no such override", codec.ErrCorrupt)
	}
	return x, nil
}

// MostOverrides bounds what people may have decided about at a time.
const MostOverrides = 10_000

// Apply makes a change. It reports false if there was nothing to change, no room, or no strategy of the name that settings have.
func (c *Core) Apply(x *Change) bool {
	switch {
	case x.Settings != nil:
		s := x.Settings
		strategy, err := strategyNamed(s.Strategy, c.options.Strategies)
		if err != nil {
			return false
		}
		c.strategy = strategy
		c.options.Watch, c.options.Budget, c.options.Strategy, c.options.Explore = s.Watch, s.Budget, s.Strategy, s.Explore
		c.options.Retention = s.Retention
		return true
	case x.Override != nil:
		return c.override(*x.Override)
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

// overrideVerbs say what somebody does who overrides the search, by the kind of override.
var overrideVerbs = [...]string{search.Enable: "enables", search.Pin: "pins", search.Forbid: "forbids"}

// override takes what a person decided about a tracepoint, in place of what was decided before. It reports whether there was room.
func (c *Core) override(w search.Override) bool {
	c.withdraw(w.Tracepoint)
	if len(c.state.Overrides) >= MostOverrides {
		return false
	}
	c.state.Overrides = append(c.state.Overrides, w)
	c.said(w.By, overrideVerbs[w.Kind], w.Tracepoint)
	return true
}

// withdraw takes back what a person decided about a tracepoint. It reports whether there was anything.
func (c *Core) withdraw(tracepoint trace.Symbol) bool {
	var left []search.Override // of its own: what Next returned is not changed
	for _, w := range c.state.Overrides {
		if w.Tracepoint != tracepoint {
			left = append(left, w)
		}
	}
	withdrawn := len(left) < len(c.state.Overrides)
	c.state.Overrides = left
	return withdrawn
}
