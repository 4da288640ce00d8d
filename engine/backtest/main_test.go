package backtest

import (
	"runtime/debug"
	"testing"
)

// TestMain reduces garbage collection in the simulations. Their heap is small, but collecting it takes a sixth of their
// time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
