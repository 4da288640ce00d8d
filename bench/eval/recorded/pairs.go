package recorded

import (
	"context"
	"math/rand/v2"

	"github.com/sibyl-trace/sibyl/engine/backtest"
)

// Pairs is the result of [Set.NoticePairs]. A pair counts as both if each case raised an incident of its own with the
// labelled service first, and as one if at least one case did.
type Pairs struct {
	Pairs          int     `json:"pairs"`
	Both           float64 `json:"both"` // fractions of the pairs
	One            float64 `json:"one"`
	FalseIncidents int     `json:"false_incidents"`
	HealthyHours   float64 `json:"healthy_hours"`
}

// NoticePairs plays a stream as [Set.Notice] does, but lays the traces of two cases over each other in each window. The
// cases of a pair are random and of different services. Each was noticed alone with its service first.
func (s *Set) NoticePairs(
	ctx context.Context, stream Stream, alone *backtest.Score, number int, seed uint64, options backtest.Options,
) (*Pairs, error) {
	score, err := s.play(ctx, stream, s.pairs(alone, number, seed), options)
	if err != nil {
		return nil, err
	}
	return pairsOf(score), nil
}

// pairs returns at most number random pairs of the cases that were noticed alone.
func (s *Set) pairs(alone *backtest.Score, number int, seed uint64) (pairs [][]Case) {
	noticed := make(map[string]bool)
	for i := range alone.Cases {
		if c := &alone.Cases[i]; first(c) {
			noticed[c.Name] = true
		}
	}
	for i, a := range s.Cases {
		for _, b := range s.Cases[:i] {
			if noticed[a.Name] && noticed[b.Name] && a.Target.Service != b.Target.Service {
				pairs = append(pairs, []Case{b, a})
			}
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(pairs), func(i, k int) { pairs[i], pairs[k] = pairs[k], pairs[i] })
	return pairs[:min(number, len(pairs))]
}

// first reports whether the labelled service is the first suspect.
func first(c *backtest.Case) bool { return c.RankService != nil && *c.RankService == 1 }

// pairsOf sums up the cases of a stream, which come in pairs.
func pairsOf(score *backtest.Score) *Pairs {
	p := &Pairs{Pairs: len(score.Cases) / 2, FalseIncidents: len(score.False), HealthyHours: score.HealthyHours}
	both, one := 0, 0
	for i := range p.Pairs {
		a, b := &score.Cases[2*i], &score.Cases[2*i+1]
		if first(a) && first(b) && a.Incident != b.Incident {
			both++
		}
		if first(a) || first(b) {
			one++
		}
	}
	n := float64(max(1, p.Pairs))
	p.Both, p.One = float64(both)/n, float64(one)/n
	return p
}
