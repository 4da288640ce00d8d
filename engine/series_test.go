package engine_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// Edges of two request types are common if their mean times rise and fall together, but not if only the load does.
func TestCommonEdges(t *testing.T) {
	for _, common := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 1))
		core, now := newSlowCore(2), start
		for range 120 {
			load, delay := 1<<r.IntN(7), math.Exp(0.3*r.NormFloat64())
			for requestType := range 2 {
				d := 10e6 * math.Exp(0.05*r.NormFloat64())
				if common {
					d *= delay
				}
				for i := range load {
					core.Observe(requests.Plain(requestType, 0, now+trace.Nanos(i), time.Duration(d)), nil)
				}
			}
			now = now.Add(core.View().Options.Epoch)
			core.Epoch(now)
		}
		if len(core.View().Problems.Open()) == 0 {
			t.Fatal("no problem to compare edges for")
		}
		found := core.View().Common
		if (len(found) > 0) != common || common && len(found[0].Edges) != 2 {
			t.Errorf("a common delay %t: found %+v", common, found)
		}
	}
}
