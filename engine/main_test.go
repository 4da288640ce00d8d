package engine_test

import (
	"runtime/debug"
	"testing"
)

// TestMain lets simulations collect garbage less often: they have a small heap, and collecting it takes a sixth of
// their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
