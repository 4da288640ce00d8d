package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Settings are the options that can change while a [Core] is running. A change takes effect at the end of the epoch.
type Settings struct {
	Watch    detect.WatchOptions
	Budget   search.Budget
	Strategy string

	Retention time.Duration

	Objectives []incident.Objective
	Gates      incident.Gates
}

// Settings returns the options of o that can change while a Core is running.
func (o *Options) Settings() Settings {
	return Settings{
		Watch:      o.Watch,
		Budget:     o.Budget,
		Strategy:   o.Strategy,
		Retention:  o.Retention,
		Objectives: o.Objectives,
		Gates:      o.Gates,
	}
}

// Change is an input to decisions that isn't a trace. Each change is written to the journal, so that decisions remain a
// function of the journal. Exactly one field must be set, apart from By and Text.
type Change struct {
	Settings *Settings        `cbor:"settings,omitempty"`
	Override *search.Override `cbor:"override,omitempty"` // replaces an earlier override of the same tracepoint
	Withdraw trace.Symbol     `cbor:"withdraw,omitempty"` // tracepoint whose override is withdrawn
	Steer    *search.Steering `cbor:"steer,omitempty"`    // see Searches.steer
	Accept   uint64           `cbor:"accept,omitempty"`   // ID of the incident whose behaviour becomes normal
	By       string           `cbor:"by,omitempty"`       // person who withdraws or accepts
	Text     string           `cbor:"text,omitempty"`     // reason given for accepting
	Feedback *search.Feedback `cbor:"feedback,omitempty"`
	Report   *Report          `cbor:"report,omitempty"` // event reported by another system
	Sent     *Sent            `cbor:"sent,omitempty"`
	File     *File            `cbor:"file,omitempty"`
}

// File is the new content of a file in the data directory that contains people's input. No decision depends on it; it
// is in the journal so that all replicas have the file.
type File struct {
	Name string `cbor:"name"` // without a directory
	Data []byte `cbor:"data"`
}

// Sent tells that a message about an event was delivered. No decision depends on it; it is in the journal so that a
// replica that takes over doesn't send the message again.
type Sent struct {
	Event    string `cbor:"event"`
	Endpoint string `cbor:"endpoint"`
}

// changeVersion is the first byte of an encoded [Change].
const changeVersion = 1

// Append appends the encoding of x to b.
func (x *Change) Append(b []byte) []byte { return plain.Append(append(b, changeVersion), x) }

// DecodeChange decodes a change encoded by [Change.Append]; b must contain nothing else. Errors wrap
// [codec.ErrCorrupt]. DecodeChange doesn't retain b.
func DecodeChange(b []byte) (x Change, err error) {
	r := codec.NewReader(b)
	r.Version(changeVersion)
	if err = r.Err(); err == nil {
		err = plain.Decode(r.Rest(), &x)
	}
	if err != nil {
		return Change{}, fmt.Errorf("change: %w", err)
	}
	if !x.valid() {
		return Change{}, fmt.Errorf("%w: change with a value out of range", codec.ErrCorrupt)
	}
	return x, nil
}

// valid reports whether all enumerated values of x are known, its numbers are finite, and its objectives are valid.
func (x *Change) valid() bool {
	if x.Override != nil && x.Override.Kind > search.Forbid || x.Settings != nil && !x.Settings.valid() ||
		x.Steer != nil && !x.Steer.Subject.Valid() || x.Report != nil && !x.Report.valid() {
		return false
	}
	if x.Feedback == nil {
		return true
	}
	for i := range x.Feedback.Catalogues {
		for k := range x.Feedback.Catalogues[i].Tracepoints {
			if t := &x.Feedback.Catalogues[i].Tracepoints[k]; t.Layer > cct.Kernel || t.Kind > cct.ProbePoint ||
				t.Span > trace.Consumer || t.OwnerSpan > trace.Consumer {
				return false
			}
		}
	}
	for i := range x.Feedback.Stacks {
		if x.Feedback.Stacks[i].Kind > trace.Consumer {
			return false
		}
	}
	m := x.Feedback.Measured
	return m == nil || finite(m.Hits, m.Bytes, m.CPU)
}

// finite reports whether all numbers are finite.
func finite(numbers ...float64) bool {
	for _, x := range numbers {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// MostOverrides is the maximum number of overrides.
const MostOverrides = 10_000

// MostSteered is the maximum number of subjects whose search people can have started or ended at the same time.
const MostSteered = 1000

// Apply applies x. It returns false if the override to withdraw or the open incident to accept doesn't exist, if there
// are already [MostOverrides] overrides or [MostSteered] steered searches, if the strategy is unknown, or if the event
// has already been reported.
func (c *Core) Apply(x *Change) bool {
	switch {
	case x.Settings != nil:
		return c.set(x.Settings)
	case x.Override != nil:
		o := x.Override
		taken := c.searches.override(*o)
		if taken {
			c.log.addOverride(o.By, overrideVerbs[o.Kind], c.table.Text(o.Tracepoint))
		}
		return taken
	case x.Steer != nil:
		taken := c.searches.steer(*x.Steer)
		if taken {
			verb := "starts the search for "
			switch {
			case x.Steer.Until == 0:
				verb = "leaves it to the rules whether to search "
			case x.Steer.Ended:
				verb = "ends the search for "
			}
			c.log.add(x.Steer.By, verb+x.Steer.Subject.String())
		}
		return taken
	case x.Feedback != nil:
		if c.offers.apply(x.Feedback) {
			c.offered()
		}
		return true
	case x.Report != nil:
		return c.annotations.report(x.Report)
	case x.Sent != nil, x.File != nil:
		return true // only the replicas need it
	case x.Accept != 0:
		return c.accept(x.Accept, x.By, x.Text)
	}
	withdrawn := c.searches.withdraw(x.Withdraw)
	if withdrawn {
		c.log.addOverride(x.By, "withdraws the override of", c.table.Text(x.Withdraw))
	}
	return withdrawn
}

// overrideVerbs are the verbs used in the decision log, by kind of override.
var overrideVerbs = [...]string{search.Enable: "enables", search.Pin: "pins", search.Forbid: "forbids"}

// set replaces the settings with s. It changes nothing and returns false if s.Strategy is unknown.
func (c *Core) set(s *Settings) bool {
	strategy, err := StrategyNamed(s.Strategy, c.options.Strategies)
	if err != nil {
		return false
	}
	c.searches.strategy = strategy
	c.options.Watch, c.options.Budget, c.options.Strategy = s.Watch, s.Budget, s.Strategy
	c.options.Retention, c.options.Objectives, c.options.Gates = s.Retention, s.Objectives, s.Gates
	c.incidents.watch(s.Objectives, s.Gates)
	return true
}

// accept declares the behaviour since the onset of the open incident with the given id, including the behaviour in its
// changed problems, to be the new normal. It returns false if there is no such incident; see [incident.Tracker.Accept].
func (c *Core) accept(id uint64, by, text string) bool {
	accepted := c.incidents.tracker.Accept(id, by, text)
	if !accepted {
		return false
	}
	if a := c.incidents.affected[id]; a != nil {
		c.problems.accept(c.detector, c.groups().Closed(),
			func(p *detect.Problem) bool { return slices.Contains(a.Problems, p.ID) })
	}
	for _, x := range c.incidents.tracker.Incidents() {
		if x.ID == id {
			c.objectives.Waive(x.Objectives)
		}
	}
	entry := fmt.Sprintf("accepts the behaviour since the onset of incident %016x as normal", id)
	if text != "" {
		entry += ": " + text
	}
	c.log.add(by, entry)
	return true
}
