package wild

import (
	"testing"

	"github.com/sibyl-trace/sibyl/internal/testkit/livetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// A running service and a backtest count the same spans of a random application, by name and by IP address.
func TestCoverage(t *testing.T) {
	for name, seed := range map[string]uint64{"by name": 1000, "by its IP": 1017} {
		t.Run(name, func(t *testing.T) {
			const requests = 1500
			livetest.CoverageAgrees(t, func(do func(trace.Nanos, []byte) error) error {
				return Requests(seed, requests, do)
			})
		})
	}
}
