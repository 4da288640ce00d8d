package backtest

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// NewCorePlayer returns a Player that plays traces through a core of the test.
func NewCorePlayer(c *engine.Core, options Options) *Player { return newPlayer(c, nil, options) }

// Now returns the time until which p has played.
func (p *Player) Now() trace.Nanos { return p.now }
