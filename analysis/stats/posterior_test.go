package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

func TestPosterior(t *testing.T) {
	p := stats.Believe(0.2, 0.2).Observe(stats.Interval{Value: 0.8, Low: 0.8 - 0.196, High: 0.8 + 0.196})
	near(t, "mean", p.Mean, (0.2*25+0.8*100)/125, 1e-4)
	near(t, "deviation", p.Deviation(), 1/math.Sqrt(125), 1e-4)
	if q := p.Observe(stats.Interval{Value: 1, Low: math.NaN(), High: math.NaN()}); q != p {
		t.Errorf("an interval without bounds changed %+v to %+v", p, q)
	}
	near(t, "aged", p.Age(2).Deviation(), 2*p.Deviation(), 1e-12)
	r := rand.New(rand.NewPCG(1, 1))
	var sum float64
	for range 10000 {
		sum += p.Draw(r) / 10000
	}
	near(t, "mean of draws", sum, p.Mean, 0.005)
}

func TestPoolOfSiblings(t *testing.T) {
	prior := stats.Believe(0.5, 10)
	if got := stats.Pool(prior, nil); got != prior {
		t.Errorf("no siblings: %+v", got)
	}
	alike := stats.Pool(prior, []stats.Posterior{stats.Believe(0.1, 0.05), stats.Believe(0.1, 0.05)})
	near(t, "alike", alike.Mean, 0.1, 1e-3)
	apart := stats.Pool(prior, []stats.Posterior{stats.Believe(0, 0.05), stats.Believe(0.8, 0.05)})
	near(t, "apart", apart.Mean, 0.4, 1e-2)
	if apart.Deviation() < 4*alike.Deviation() {
		t.Errorf("siblings that differ say as much (%v) as siblings alike (%v)", apart.Deviation(), alike.Deviation())
	}
}
