package backtest

import "github.com/sibyl-trace/sibyl/engine"

// NewCorePlayer returns a Player that plays traces through c.
func NewCorePlayer(c *engine.Core, options Options) *Player {
	return newPlayer(engineCore{c}, nil, options)
}
