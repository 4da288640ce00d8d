package incident_test

import (
	"runtime/debug"
	"testing"
)

// TestMain makes simulations collect garbage less often. They have a small heap, and collecting it takes a sixth of
// their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
