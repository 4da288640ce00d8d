package incident

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/trace"
)

// A full contrast keeps the steps with the smallest identities, with all of their times, whatever the order of the
// requests. Saving and restoring changes nothing.
func TestContrastBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var steps []Step
	for i := range 3 * maxSteps {
		step := Step{Op: trace.Op(rng.Uint64()), Nanos: int64(i + 1)}
		steps = append(steps, step, step)
	}
	var saved []SavedContrast
	for range 5 {
		rng.Shuffle(len(steps), func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
		c := contrast{}
		for i := range steps {
			c.add(steps[i:i+1], true, steps[i].Nanos%2 == 0)
		}
		state := c.save()
		c.restore(&state)
		if diff := cmp.Diff(state, c.save()); diff != "" {
			t.Fatalf("(-saved +restored):\n%s", diff)
		}
		saved = append(saved, state)
	}
	for _, s := range saved[1:] {
		if diff := cmp.Diff(saved[0], s); diff != "" || len(s.Steps) != maxSteps {
			t.Fatalf("%d steps; another order gives another contrast:\n%s", len(s.Steps), diff)
		}
	}
}

// Slow requests spend their time in the service that they call, and failures start where no call fails.
func TestContrastSuspects(t *testing.T) {
	table := &trace.Table{}
	op := func(service, name string, kind trace.Kind) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), kind)
	}
	shop, pay := op("shop", "POST", trace.Server), op("pay", "Charge", trace.Server)
	bank := op("bank", "Book", trace.External)
	var slow, failing contrast
	for i := range 100 {
		steps := []Step{{Op: shop, Nanos: 10}, {Op: pay, Nanos: 80}, {Op: table.Step(pay, bank), Nanos: 10}}
		missed := i < 10
		if missed {
			steps[1].Nanos, steps[0].Nanos = 280, 5
			steps[i%2+1].Failed = i > 0
		}
		slow.add(steps, true, missed)
		failing.add(steps, false, missed)
	}
	suspects, duration := slow.suspects(table, true, 0.1)
	if len(suspects) != 1 || table.Text(suspects[0].Service) != "pay" || math.Abs(suspects[0].Score-0.2) > 1e-9 ||
		suspects[0].Own != suspects[0].Score || duration != 100 {
		t.Errorf("suspects of slow requests %+v of %g ns, want pay with a tenth of twice the duration",
			suspects, duration)
	}
	suspects, _ = failing.suspects(table, false, 0.1)
	if len(suspects) != 1 || table.Text(suspects[0].Service) != "pay" || math.Abs(suspects[0].Errors-0.09) > 1e-9 {
		t.Errorf("suspects of failures %+v, want pay with nine in a hundred", suspects)
	}
}
