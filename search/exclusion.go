package search

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// CooldownPeriod is the time for which a tracepoint that explained nothing stays off for the same problem.
const CooldownPeriod = 30 * time.Minute

// exclusions holds the tracepoints that may not be switched on.
type exclusions struct {
	forbidden   map[trace.Symbol]bool // tracepoints that an override forbids
	unavailable map[trace.Symbol]bool // tracepoints that agents cannot enable
	unproven    map[trace.Symbol]bool // see Input
	returning   map[trace.Symbol]bool // see Input
	cooldowns   []Cooldown
	cooling     map[coolingKey]bool // keys of cooldowns
}

type coolingKey struct {
	subject    Subject
	tracepoint trace.Symbol
}

func newExclusions(in *Input) exclusions {
	x := exclusions{
		forbidden:   make(map[trace.Symbol]bool),
		unavailable: make(map[trace.Symbol]bool),
		unproven:    make(map[trace.Symbol]bool),
		returning:   make(map[trace.Symbol]bool),
		cooling:     make(map[coolingKey]bool),
	}
	for i := range in.State.Overrides {
		if o := &in.State.Overrides[i]; o.Kind == Forbid && o.holds(in.Now) {
			x.forbidden[o.Tracepoint] = true
		}
	}
	for _, tp := range in.Unproven {
		x.unproven[tp] = true
	}
	for _, tp := range in.Returning {
		x.returning[tp] = true
	}
	for _, c := range in.State.Cooldowns {
		if c.Until > in.Now && !x.unproven[c.Tracepoint] {
			x.cooldowns = append(x.cooldowns, c)
			x.cooling[coolingKey{c.Subject, c.Tracepoint}] = true
		}
	}
	for _, tp := range in.Unavailable {
		x.unavailable[tp] = true
	}
	return x
}

// always reports whether tp must be off for all problems.
func (x *exclusions) always(tp trace.Symbol) bool { return x.forbidden[tp] || x.unavailable[tp] }

// reason returns why tp may not be switched on for subject, or "" if it may.
func (x *exclusions) reason(subject Subject, tp trace.Symbol) string {
	switch {
	case x.forbidden[tp]:
		return WhyForbidden
	case x.unavailable[tp]:
		return WhyUnavailable
	case x.cooling[coolingKey{subject, tp}]:
		return WhyCooldown
	}
	return ""
}

// coolDown keeps tp off for subject for [CooldownPeriod]. It doesn't extend a cooldown that is running.
func (x *exclusions) coolDown(subject Subject, tp trace.Symbol, now trace.Nanos) {
	if k := (coolingKey{subject, tp}); !x.cooling[k] {
		x.cooling[k] = true
		x.cooldowns = append(x.cooldowns, Cooldown{Subject: subject, Tracepoint: tp, Until: now.Add(CooldownPeriod)})
	}
}

// endCooldowns ends all cooldowns of subject.
func (x *exclusions) endCooldowns(subject Subject) {
	x.cooldowns = slices.DeleteFunc(x.cooldowns, func(c Cooldown) bool { return c.Subject == subject })
	for k := range x.cooling {
		if k.subject == subject {
			delete(x.cooling, k)
		}
	}
}
