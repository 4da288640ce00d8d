package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/internal/codec"
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

// Change is an input of decisions other than traces. It is one record of the journal, so that decisions remain a
// function of the journal. Exactly one field is set, apart from By.
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

// MostOverrides is the maximum number of overrides.
const MostOverrides = 10_000

// Apply makes a change. It reports false if there was nothing to change, no room, or no strategy of the name that
// settings have.
func (c *Core) Apply(x *Change) bool {
	switch {
	case x.Settings != nil:
		s := x.Settings
		strategy, err := StrategyNamed(s.Strategy, c.options.Strategies)
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
		c.said(x.By, "withdraws the override of", x.Withdraw)
	}
	return withdrawn
}

// overrideVerbs are the verbs for the log of decisions, by kind of override.
var overrideVerbs = [...]string{search.Enable: "enables", search.Pin: "pins", search.Forbid: "forbids"}

// override replaces the override of a tracepoint. It reports false if there are too many.
func (c *Core) override(o search.Override) bool {
	c.withdraw(o.Tracepoint)
	if len(c.state.Overrides) >= MostOverrides {
		return false
	}
	c.state.Overrides = append(c.state.Overrides, o)
	c.said(o.By, overrideVerbs[o.Kind], o.Tracepoint)
	return true
}

// withdraw ends the override of a tracepoint. It reports whether there was one.
func (c *Core) withdraw(tracepoint trace.Symbol) bool {
	var left []search.Override // a new slice: Next returned the other
	for _, o := range c.state.Overrides {
		if o.Tracepoint != tracepoint {
			left = append(left, o)
		}
	}
	withdrawn := len(left) < len(c.state.Overrides)
	c.state.Overrides = left
	return withdrawn
}
