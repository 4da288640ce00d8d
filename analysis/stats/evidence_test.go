package stats_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// group simulates the requests of a group: heavy-tailed, correlated within an epoch, drifting.
type group struct {
	r        *rand.Rand
	rate     float64 // requests per epoch, on average
	latency  func(r *rand.Rand) float64
	block    float64 // common factor of an epoch, log scale, AR(1)
	phase    float64
	slowness float64 // factor on every latency
	pauses   float64 // probability of an epoch with a pause: 40 % of its requests take twice as long
}

func newGroup(seed uint64) *group {
	r := rand.New(rand.NewPCG(seed, 99))
	shapes := []func(r *rand.Rand) float64{
		func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.3) },
		func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.5) },
		func(r *rand.Rand) float64 { return lognormal(r, 20e6, 1) },
		func(r *rand.Rand) float64 { return 10e6 * math.Pow(1-r.Float64(), -1/2.5) },
		func(r *rand.Rand) float64 {
			if r.Float64() < 0.1 {
				return lognormal(r, 200e6, 0.3)
			}
			return lognormal(r, 20e6, 0.3)
		},
	}
	return &group{
		pauses: []float64{0, 0, 0.05}[r.IntN(3)],
		r:      r, rate: []float64{0.5, 5, 50}[r.IntN(3)], latency: shapes[r.IntN(len(shapes))],
		phase: 2 * math.Pi * r.Float64(), slowness: 1,
	}
}

// epoch returns the durations of epoch i: with noise common to the epoch (3 %, lasting some epochs), a drift and a
// daily curve (in fast motion) of 5 % each.
func (g *group) epoch(i int) []int64 {
	g.block = 0.7*g.block + 0.02*g.r.NormFloat64()
	f := g.slowness * math.Exp(g.block) * (1 + 0.05*math.Sin(g.phase+float64(i)/57)) *
		(1 + 0.05*math.Sin(2*g.phase+float64(i)/500))
	paused := g.r.Float64() < g.pauses
	xs := make([]int64, poisson(g.r, g.rate))
	for i := range xs {
		xs[i] = int64(f * g.latency(g.r))
		if paused && g.r.Float64() < 0.4 {
			xs[i] *= 2
		}
	}
	return xs
}

func poisson(r *rand.Rand, mean float64) (n int) {
	for left := mean - r.ExpFloat64(); left > 0; left -= r.ExpFloat64() {
		n++
	}
	return n
}

// learn returns the reference of the first epochs, with at least atLeast durations, and the next epoch.
func (g *group) learn(atLeast uint64) (stats.Reference, int) {
	var s stats.Sketch
	var blocks []stats.Moments
	for len(blocks) < 30 || s.Count() < atLeast {
		var block stats.Sketch
		for _, x := range g.epoch(len(blocks)) {
			block.Add(x)
		}
		s.Merge(block)
		blocks = append(blocks, block.Logs())
	}
	return stats.NewReference(&s, blocks, stats.DefaultTestOptions()), len(blocks)
}

func count(r *stats.Reference, xs []int64) (c stats.Counts) {
	for _, x := range xs {
		c.Add(r, x)
	}
	return c
}

// alarm is the e-value of an alarm for a single group: at most one false alarm in a thousand group-hours.
const alarm = 2000

// TestFalseAlarms prints the number of healthy groups that raise an alarm, each alone and by e-BH over all groups.
func TestFalseAlarms(t *testing.T) {
	const groups, hours = 300, 5
	slower, variable := make([]float64, groups), make([]float64, groups)
	highest := make([]stats.Change, groups)
	var alone, together int
	all := make([]*group, groups)
	refs := make([]stats.Reference, groups)
	begin := make([]int, groups)
	for i := range all {
		all[i] = newGroup(uint64(i))
		refs[i], begin[i] = all[i].learn(100)
	}
	alarmed := make([]bool, groups)
	for e := range hours * stats.Horizon {
		for i, g := range all {
			highest[i].Step(&refs[i], count(&refs[i], g.epoch(begin[i]+e)))
			slower[i], variable[i] = highest[i].Slower(), highest[i].Variable()
			if !alarmed[i] && max(slower[i], variable[i]) >= alarm {
				alarmed[i] = true
				alone++
				t.Logf("group %d (rate %v): slower %.0f, variable %.0f in epoch %d",
					i, g.rate, slower[i], variable[i], e)
			}
		}
		together = max(together, len(stats.EBH(slower, 0.05))+len(stats.EBH(variable, 0.05)))
	}
	t.Logf("%d group-hours: %d alarms alone, %d at once by e-BH", groups*hours, alone, together)
	if alone > 1 || together > 0 {
		t.Errorf("%d false alarms alone, %d by e-BH in %d group-hours, want at most 1, 0",
			alone, together, groups*hours)
	}
}

// A few slow requests at the start of a service don't hide a later slowdown of a third of the requests, which is
// detected within ten epochs.
func TestSlowStart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var all stats.Sketch
	var blocks []stats.Moments
	for epoch := range 10 {
		var block stats.Sketch
		for k := range 25 {
			x := lognormal(r, 4e6, 0.4)
			if epoch == 0 && k < 4 {
				x = 70e6
			}
			block.Add(int64(x))
		}
		all.Merge(block)
		blocks = append(blocks, block.Logs())
	}
	options := stats.DefaultTestOptions()
	options.Margin, options.Rho, options.Alpha = 0.05, 0.005, 1e-2 // as in detect.DefaultWatchOptions
	reference := stats.NewReference(&all, blocks, options)
	var change stats.Change
	for range 10 {
		var durations []int64
		for k := range 25 {
			x := lognormal(r, 4e6, 0.4)
			if k%3 == 0 {
				x *= 5
			}
			durations = append(durations, int64(x))
		}
		change.Step(&reference, count(&reference, durations))
	}
	if change.Slower() < alarm {
		t.Errorf("Slower() = %.3g, want at least %d", change.Slower(), alarm)
	}
}

// TestDelay prints the number of epochs of 50 requests before a change is detected.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		shape  func(r *rand.Rand) float64
		change func(r *rand.Rand, x float64) float64
		within float64 // required median of the delay in epochs
	}{
		{"log-normal σ=0.3, doubled", func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.3) }, double, 3},
		{"log-normal σ=0.5, doubled", func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.5) }, double, 4},
		{"log-normal σ=1, doubled", func(r *rand.Rand) float64 { return lognormal(r, 20e6, 1) }, double, 20},
		{"log-normal σ=0.3, one in five takes four times", func(r *rand.Rand) float64 {
			return lognormal(r, 20e6, 0.3)
		}, sometimes, 8},
	} {
		var delays []float64
		for seed := range uint64(60) {
			g := newGroup(seed)
			g.rate, g.latency, g.pauses = 50, c.shape, 0
			ref, begin := g.learn(100)
			var change stats.Change
			for i := range 60 { // ten healthy minutes
				change.Step(&ref, count(&ref, g.epoch(begin+i)))
			}
			delay := 1.0
			for ; delay < 100; delay++ {
				xs := g.epoch(begin + 60 + int(delay))
				for i := range xs {
					xs[i] = int64(c.change(g.r, float64(xs[i])))
				}
				change.Step(&ref, count(&ref, xs))
				if max(change.Slower(), change.Variable()) >= alarm {
					break
				}
			}
			delays = append(delays, delay)
		}
		median, p90 := stats.Median(slices.Clone(delays)), stats.Quantile(delays, 0.9)
		t.Logf("%s: detected after %v epochs of 50 requests (90 %%: %.0f)", c.name, median, p90)
		if median > c.within {
			t.Errorf("%s: detected after %v epochs, want at most %v", c.name, median, c.within)
		}
	}
}

func double(_ *rand.Rand, x float64) float64 { return 2 * x }

func sometimes(r *rand.Rand, x float64) float64 {
	if r.Float64() < 0.2 {
		return 4 * x
	}
	return x
}

// A group with a larger spread and the same median is more variable, not slower.
func TestVariableIsNotSlower(t *testing.T) {
	g := newGroup(1)
	g.rate, g.latency = 50, func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.2) }
	ref, begin := g.learn(1000)
	g.latency = func(r *rand.Rand) float64 { return lognormal(r, 20e6, 0.6) }
	var c stats.Change
	for i := range 30 {
		c.Step(&ref, count(&ref, g.epoch(begin+i)))
	}
	if c.Variable() < alarm || c.Slower() > c.Variable() {
		t.Errorf("Variable() = %v, Slower() = %v, want an alarm of the former only", c.Variable(), c.Slower())
	}
}

func mixEpoch(r *rand.Rand, proportions []float64, n int) []uint64 {
	counts := make([]uint64, len(proportions))
	for range n {
		u := r.Float64()
		i := 0
		for ; i < len(proportions)-1 && u >= proportions[i]; i++ {
			u -= proportions[i]
		}
		counts[i]++
	}
	return counts
}

// TestMix prints the number of false alarms over healthy hours with an oscillating mix, and the delay until a new group
// of 10 % of the requests is detected.
func TestMix(t *testing.T) {
	o := stats.DefaultTestOptions()
	healthy, falseAlarms := []float64{0.6, 0.3, 0.09, 0.01, 0}, 0
	var delays []float64
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		learned := make([]uint64, len(healthy))
		rate := []int{2, 20}[seed%2]
		for range 30 {
			for i, k := range mixEpoch(r, healthy, rate) {
				learned[i] += k
			}
		}
		ref := stats.NewMixReference(learned, 30, o)
		var m stats.Mix
		alarmed := false
		for e := range stats.Horizon {
			oscillating := slices.Clone(healthy)
			shift := 0.05 * math.Sin(float64(e)/40)
			oscillating[0], oscillating[1] = oscillating[0]-shift, oscillating[1]+shift
			m.Step(&ref, mixEpoch(r, oscillating, rate))
			alarmed = alarmed || m.Shifted() >= alarm
		}
		if alarmed {
			falseAlarms++
		}
		if rate == 2 {
			continue
		}
		delay := 1.0
		for ; delay < 100 && m.Shifted() < alarm; delay++ {
			m.Step(&ref, mixEpoch(r, []float64{0.54, 0.27, 0.08, 0.01, 0.1}, rate))
		}
		delays = append(delays, delay-1)
	}
	median := stats.Median(delays)
	t.Logf("300 hours: %d false alarms; a new group of 10 %% detected after %v epochs of 20 requests",
		falseAlarms, median)
	if falseAlarms > 0 || median > 15 {
		t.Errorf("%d false alarms, delay of %v epochs, want 0, at most 15", falseAlarms, median)
	}
	var empty stats.Mix
	if empty.Shifted() != 0 {
		t.Errorf("Shifted() = %v of an empty mix, want 0", empty.Shifted())
	}
}

// If the null hypothesis holds with equality, the expected evidence of t epochs is at most t/Horizon, less the decay.
// The expectation is exact: over all outcomes of four epochs of three requests.
func TestEvidenceIsFair(t *testing.T) {
	const epochs = 4
	var fair float64
	for range epochs {
		fair = (1-1.0/stats.Horizon)*fair + 1
	}
	for _, c := range []struct{ bound, rho float64 }{{0.02, 0}, {0.5, 0}, {0.1, 0.02}, {0.5, 0.5}} {
		var mean float64
		for outcome := range 1 << (2 * epochs) {
			var e stats.Evidence
			probability := 1.0
			for epoch := range epochs {
				k := outcome >> (2 * epoch) & 3
				probability *= []float64{1, 3, 3, 1}[k] * math.Pow(c.bound, float64(k)) *
					math.Pow(1-c.bound, float64(3-k))
				e.Step(c.bound, uint64(k), 3, c.rho)
			}
			mean += probability * e.Value() * stats.Horizon
		}
		if mean > fair+1e-9 {
			t.Errorf("bound %v, rho %v: mean evidence %v, want at most %v", c.bound, c.rho, mean, fair)
		}
		if c.rho == 0 && c.bound == 0.5 && mean < fair-1e-9 { // nothing capped, full power: no bet is given away
			t.Errorf("bound %v: mean evidence %v, want %v", c.bound, mean, fair)
		}
	}
}

func TestEBH(t *testing.T) {
	for _, c := range []struct {
		e    []float64
		want []int
	}{
		{nil, []int{}},
		{[]float64{19, 1}, []int{}},
		{[]float64{1, 40, math.NaN()}, []int{}},
		{[]float64{1, 60, math.NaN()}, []int{1}},
		{[]float64{35, 1, 35}, []int{0, 2}}, // 35 >= 3/(0.05·2), so both together; 35 < 3/0.05, so neither alone
		{[]float64{math.Inf(1), 0}, []int{0}},
	} {
		if diff := cmp.Diff(c.want, stats.EBH(c.e, 0.05)); diff != "" {
			t.Errorf("EBH(%v): %s", c.e, diff)
		}
	}
}

func TestEvidenceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup(rapid.Uint64().Draw(t, "seed"))
		ref, begin := g.learn(10)
		var c stats.Change
		c.Step(&ref, count(&ref, g.epoch(begin)))
		gotRef, _, err := stats.DecodeReference(ref.AppendBinary(nil))
		if err != nil || gotRef != ref {
			t.Fatalf("decoded %+v, %v, want %+v", gotRef, err, ref)
		}
		got, _, err := stats.DecodeChange(c.AppendBinary(nil))
		if err != nil || got != c {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, c)
		}
	})
}

func FuzzDecodeEvidence(f *testing.F) {
	g := newGroup(1)
	ref, begin := g.learn(10)
	var c stats.Change
	c.Step(&ref, count(&ref, g.epoch(begin)))
	var m stats.Mix
	mixRef := stats.NewMixReference([]uint64{5, 0}, 3, stats.DefaultTestOptions())
	m.Step(&mixRef, []uint64{3, 1})
	f.Add(ref.AppendBinary(nil))
	f.Add(c.AppendBinary(nil))
	f.Add(m.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := stats.DecodeReference(b)
		checkDecoded(t, b, rest, err, r == stats.Reference{}, r.AppendBinary)
		c, rest, err := stats.DecodeChange(b)
		checkDecoded(t, b, rest, err, c == stats.Change{}, c.AppendBinary)
		c.Step(&r, count(&r, []int64{1, 1e6, 1e9}))
		if v := c.Slower() + c.Variable(); !(v >= 0) {
			t.Errorf("sum of e-values %v, want at least 0", v)
		}
		m, rest, err := stats.DecodeMix(b)
		checkDecoded(t, b, rest, err, bytes.Equal(m.AppendBinary(nil), stats.Mix{}.AppendBinary(nil)), m.AppendBinary)
		m.Shifted()
	})
}

func BenchmarkChangeStep(b *testing.B) {
	g := newGroup(1)
	ref, begin := g.learn(100)
	n := count(&ref, g.epoch(begin))
	var c stats.Change
	b.ReportAllocs()
	for b.Loop() {
		c.Step(&ref, n)
	}
}
