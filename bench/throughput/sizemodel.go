package throughput

import (
	"context"
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/bench/fixtures/transfergen"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Extent of the comparison of size models.
const (
	networks         = 40
	transfersOfModel = 2000
)

// SizeModel measures how well the size models tell normal, delayed and timed-out transfers apart: fitted on one half of the
// transfers of many simulated networks, judged on the other. The folded model of the literature is told the segment size,
// which ours has to find out.
func SizeModel(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	n := networks
	if o.Small {
		n = 2
	}
	result := &Result{Benchmark: "size-model", Input: units.Plural(n, "network") + ", " +
		units.Plural(transfersOfModel, "transfer") + " each to fit and as many to judge"}
	for _, c := range []struct {
		name     string
		segments float64
	}{{"within one packet", 0.95}, {"up to 20 packets", 20}} {
		ours, folded, err := judgeModels(ctx, o.Seed, n, c.segments)
		if err != nil {
			return nil, err
		}
		result.add("ours, "+c.name, ours.values()...)
		result.add("folded, "+c.name, folded.values()...)
	}
	return result, o.fitting(ctx, result)
}

// judgeModels classifies the transfers of n networks with both models.
func judgeModels(ctx context.Context, seed uint64, n int, segments float64) (ours, folded confusion, err error) {
	for i := range uint64(n) {
		if err := ctx.Err(); err != nil {
			return ours, folded, err
		}
		net := transfergen.Draw(seed+i, segments)
		sizes, latencies := columns(transfergen.Generate(seed+2*i, transfersOfModel, net))
		judged := transfergen.Generate(seed+2*i+1, transfersOfModel, net)
		options := stats.DefaultSizeOptions()
		options.Timeout = float64(net.Timeout)
		m, err := stats.FitSize(sizes, latencies, options)
		if err != nil {
			return ours, folded, err
		}
		ours.add(judged, m.Class)
		f, err := stats.FitFolded(sizes, latencies, net.Segment)
		if err != nil {
			return ours, folded, err
		}
		folded.add(judged, f.Class)
	}
	return ours, folded, nil
}

func columns(transfers []transfergen.Transfer) (sizes, latencies []float64) {
	for _, t := range transfers {
		sizes, latencies = append(sizes, float64(t.Size)), append(latencies, float64(t.Latency))
	}
	return sizes, latencies
}

// confusion counts transfers by their class and what a model said: [true][said].
type confusion [3][3]float64

func (c *confusion) add(transfers []transfergen.Transfer, class func(size, latency float64) stats.SizeClass) {
	for _, t := range transfers {
		c[t.Class][class(float64(t.Size), float64(t.Latency))]++
	}
}

// values returns the figures of a model.
func (c *confusion) values() []Value {
	var all, right float64
	for i, row := range c {
		all += row[0] + row[1] + row[2]
		right += row[i]
	}
	const delayed = transfergen.Delayed
	said := c[0][delayed] + c[1][delayed] + c[2][delayed]
	were := c[delayed][0] + c[delayed][1] + c[delayed][2]
	return []Value{
		part("accuracy", "right", right/all), part("precision_delayed", "of those called delayed", c[delayed][delayed]/said),
		part("recall_delayed", "of the delayed found", c[delayed][delayed]/were),
	}
}

func part(key, noun string, x float64) Value {
	return Value{key, x, strconv.FormatFloat(100*x, 'f', 2, 64) + " % " + noun}
}

// fitting measures the time of one fit.
func (o Options) fitting(ctx context.Context, result *Result) error {
	net := transfergen.Draw(o.Seed, 20)
	sizes, latencies := columns(transfergen.Generate(o.Seed, transfersOfModel, net))
	c, err := o.measure(ctx, func() error {
		_, err := stats.FitSize(sizes, latencies, stats.DefaultSizeOptions())
		return err
	})
	if err != nil {
		return err
	}
	result.add("fit of "+units.Plural(transfersOfModel, "transfer"), c.each(1, "ns_per_fit", "fit"))
	return nil
}
