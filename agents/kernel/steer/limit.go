package steer

import "fmt"

// level is the extent of the observation. Each level costs less than the previous one.
type level int

// The levels.
const (
	full     level = iota
	noStacks       // without stacks
	noEvents       // sums only, so that no waits are sent
	sampled        // sums in a tenth of the time
	off
)

var levelNames = [...]string{"full", "without stacks", "without single waits", "sums in a tenth of the time", "off"}

func (l level) String() string { return levelNames[l] }

// Lengths of the observed part and the whole period at the level sampled.
const (
	samplePeriod = 50 // ticks
	sampleTicks  = 5
)

// Numbers of judgements that make a governor change its level.
const (
	burst        = 6   // at twice the limit; so half a minute's excess is allowed at once, for example at the start
	patience     = 2   // at twice the limit, after a change
	firstReturn  = 12  // in a row below half of the limit: a minute
	latestReturn = 360 // half an hour
)

// governor keeps the cost of the agent below a limit. judge must be called at regular intervals.
type governor struct {
	limit   float64 // CPUs; 0 is unlimited
	level   level
	spent   float64 // excess over the limit, in multiples of the limit, summed up over judgements; at least 0
	calm    int     // judgements in a row below half of the limit
	returns int     // calm judgements needed to go back; grows with each failed return
}

// judge adjusts the level to cost, the average number of CPUs used since the last judgement, and reports whether the
// level has changed.
func (g *governor) judge(cost float64) (changed bool) {
	if g.limit <= 0 {
		return false
	}
	g.spent = max(0, g.spent+cost/g.limit-1)
	if cost < g.limit/2 {
		g.calm++
	} else {
		g.calm = 0
	}
	switch {
	case g.spent >= burst && g.level < off:
		g.level++
		g.spent = burst - patience
		g.returns = min(max(firstReturn, 2*g.returns), latestReturn)
		return true
	case g.level > full && g.calm >= g.returns:
		g.level--
		g.calm, g.spent = 0, burst-patience
		return true
	case g.level == full && g.calm >= latestReturn:
		g.returns = 0 // the load is over
	}
	return false
}

// reason returns the reason why no waits are sent, or "" if waits are sent.
func (g *governor) reason() string {
	if g.level < noEvents {
		return ""
	}
	return fmt.Sprintf("the kernel agent limits itself to %.3g of a CPU (--cpu-limit): %s", g.limit, g.level)
}
