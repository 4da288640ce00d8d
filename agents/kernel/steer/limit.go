package steer

import "fmt"

// level is the extent of the observation. Each one costs less than those before it.
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

// Parts of the time in which the level sampled observes.
const (
	samplePeriod = 50 // ticks
	sampleTicks  = 5
)

// Judgements after which a governor changes its level.
const (
	patience     = 2   // in a row above the limit
	firstReturn  = 12  // in a row below half of the limit: a minute
	latestReturn = 360 // half an hour
)

// governor keeps the cost of the agent below a limit. Judgements come at regular intervals.
type governor struct {
	limit   float64 // CPUs; 0: none
	level   level
	over    int // judgements in a row above the limit
	calm    int // judgements in a row below half of the limit
	returns int // calm judgements needed to go back; grows with each failed return
	cost    float64
}

// judge takes the cost since the last judgement, in CPUs, and reports whether the level changes.
func (g *governor) judge(cost float64) (changed bool) {
	g.cost = cost
	switch {
	case g.limit <= 0:
		return false
	case cost > g.limit:
		g.over, g.calm = g.over+1, 0
	case cost < g.limit/2:
		g.over, g.calm = 0, g.calm+1
	default:
		g.over, g.calm = 0, 0
	}
	switch {
	case g.over >= patience && g.level < off:
		g.level++
		g.over = 0
		g.returns = min(max(firstReturn, 2*g.returns), latestReturn)
		return true
	case g.level > full && g.calm >= g.returns:
		g.level--
		g.calm = 0
		return true
	case g.level == full && g.calm >= latestReturn:
		g.returns = 0 // the load is over
	}
	return false
}

// reason returns why no waits are sent; "" if they are.
func (g *governor) reason() string {
	if g.level < noEvents {
		return ""
	}
	return fmt.Sprintf("the kernel agent limits itself to %.3g %% of a CPU: %s", 100*g.limit, g.level)
}
