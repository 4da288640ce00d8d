package cct

import (
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// Entries whose hints form chains, cycles, or lead to variables and to nothing are placed as a walk from each would.
func TestHinted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		n := 1 + rng.IntN(2*maxDepth)
		var list []Tracepoint
		for i := range n {
			tp := Tracepoint{ID: trace.Symbol(i + 1), Parent: trace.Symbol(i)}
			if rng.IntN(20) == 0 {
				tp.Parent = trace.Symbol(rng.IntN(n + 2))
			}
			if rng.IntN(n) < 3 {
				tp.Owner = 1
			}
			if rng.IntN(n) < 2 {
				tp.Kind = VariablePoint
			}
			list = append(list, tp)
		}
		c := NewCatalogue(list, nil)
		walk := func(p *point) bool {
			for range maxDepth {
				p = c.find(p.Parent)
				if p == nil || p.Kind == VariablePoint {
					return false
				}
				if p.Owner != 0 {
					return true
				}
			}
			return false
		}
		for i := range c.all {
			if p := &c.all[i]; p.hinted != walk(p) {
				t.Fatalf("of %d entries, %+v: hinted %v", n, p.Tracepoint, p.hinted)
			}
		}
	}
}

// A large catalogue takes few allocations, as the epoch waits for it.
func TestCatalogueAllocations(t *testing.T) {
	_, list := large(30_000)
	if n := testing.AllocsPerRun(3, func() { NewCatalogue(list, nil) }); n > 300 {
		t.Errorf("%g allocations", n)
	}
}
