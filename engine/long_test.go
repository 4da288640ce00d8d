package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/group"
)

// Streams last from a minute to an hour, as their clients like, so a few more of them hardly ever make their type
// affected. Jobs that take half as long again do.
func TestAffectedLongRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	affected := func(spread, longer float64) bool {
		var usual group.Window
		since := &group.Since{}
		for i := range 230 {
			ns := int64(60e9 * math.Exp(r.Float64()*spread))
			if i < 200 {
				usual.Total.Add(ns)
				usual.Latency.Add(ns)
				continue
			}
			ns = int64(float64(ns) * longer)
			since.Total.Add(ns)
			since.Latency.Add(ns, 1)
		}
		x := AffectedType{
			Usual: usual.Total.Mean(), UsualP50: usual.Latency.Quantile(0.5),
			Mean: since.Total.Mean(), P50: since.Latency.Quantile(0.5),
			Requests: since.Total.N, Long: true,
		}
		return x.affected(since, &usual)
	}
	streams, jobs := 0, 0
	for range 200 {
		if affected(math.Log(60), 1) {
			streams++
		}
		if affected(math.Log(1.5), 1.5) {
			jobs++
		}
	}
	if streams > 2 || jobs < 190 {
		t.Errorf("of 200, %d streams and %d slower jobs are affected", streams, jobs)
	}
}
