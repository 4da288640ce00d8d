package throughput

import (
	"context"
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Extent of the comparison of size models.
const (
	networks          = 40
	transfersPerModel = 2000
)

// SizeModel measures how well the size models separate normal, delayed and timed-out transfers. They are fitted to one
// half of the transfers of many simulated networks and evaluated on the other half. The folded model of the literature
// gets the segment size as input; Sibyl's model estimates it.
func SizeModel(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	n := networks
	if o.Small {
		n = 2
	}
	result := &Result{Benchmark: "size-model", Input: units.Plural(n, "network") + ", each with " +
		units.Plural(transfersPerModel, "transfer") + " to fit and as many to classify"}
	for _, c := range []struct {
		name     string
		segments float64
	}{{"within one packet", 0.95}, {"up to 20 packets", 20}} {
		ours, folded, err := compareSizeModels(ctx, o.Seed, n, c.segments)
		if err != nil {
			return nil, err
		}
		result.add("ours, "+c.name, confusionValues(&ours)...)
		result.add("folded, "+c.name, confusionValues(&folded)...)
	}
	return result, o.measureFit(ctx, result)
}

// compareSizeModels classifies the transfers of n networks with both models.
func compareSizeModels(
	ctx context.Context, seed uint64, n int, segments float64,
) (ours, folded transfergen.Confusion, err error) {
	for i := range uint64(n) {
		if err := ctx.Err(); err != nil {
			return ours, folded, err
		}
		net := transfergen.Draw(seed+i, segments)
		sizes, latencies := transfergen.Columns(transfergen.Generate(seed+2*i, transfersPerModel, net))
		transfers := transfergen.Generate(seed+2*i+1, transfersPerModel, net)
		options := stats.DefaultSizeOptions()
		options.Timeout = float64(net.Timeout)
		m, err := stats.FitSize(sizes, latencies, options)
		if err != nil {
			return ours, folded, err
		}
		ours.Add(transfergen.Classify(transfers, m.Class))
		folded.Add(transfergen.Classify(transfers, fitFolded(sizes, latencies, net.Segment).class))
	}
	return ours, folded, nil
}

// confusionValues returns the figures of a model.
func confusionValues(c *transfergen.Confusion) []Value {
	return []Value{
		fraction("accuracy", "accuracy", c.Accuracy()),
		fraction("precision_delayed", "precision on delayed", c.Precision(transfergen.Delayed)),
		fraction("recall_delayed", "recall on delayed", c.Recall(transfergen.Delayed)),
	}
}

func fraction(key, noun string, x float64) Value {
	return Value{key, x, strconv.FormatFloat(100*x, 'f', 2, 64) + " % " + noun}
}

// measureFit measures the time of one fit.
func (o Options) measureFit(ctx context.Context, result *Result) error {
	net := transfergen.Draw(o.Seed, 20)
	sizes, latencies := transfergen.Columns(transfergen.Generate(o.Seed, transfersPerModel, net))
	c, err := o.measure(ctx, func() error {
		_, err := stats.FitSize(sizes, latencies, stats.DefaultSizeOptions())
		return err
	})
	if err != nil {
		return err
	}
	result.add("fit of "+units.Plural(transfersPerModel, "transfer"), c.each(1, "ns_per_fit", "fit"))
	return nil
}
