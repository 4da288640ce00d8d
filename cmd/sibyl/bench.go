package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/speed"
)

// benchmark is one of those that take the same options.
type benchmark struct {
	name, short string
	run         func(context.Context, speed.Options) (*speed.Result, error)
}

var benchmarks = []benchmark{
	{"path", "Extraction of critical paths", speed.Path},
	{"decode", "Decoders of OTLP, ours and the collector's", speed.Decode},
	{"group", "Grouping, its memory, and the whole way from bytes to statistics", speed.Group},
	{"open", "Memory of spans whose traces are open, for each span", speed.Open},
	{"search", "A decision over a large tree, for every strategy", speed.Search},
	{"size-model", "How well delayed transfers are told from normal ones", speed.SizeModel},
}

func (p *process) benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Measure how fast each part is",
		Long:    "Measures parts of Sibyl on one core, on at least 64 MiB of distinct traces that are generated in memory beforehand.\nTimes are those of the fastest of several passes.",
		Example: "  sibyl bench path\n  sibyl bench decode -o json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, b := range benchmarks {
		c.AddCommand(p.speedCommand(b))
	}
	c.AddCommand(p.benchIngestCommand(), p.benchOverloadCommand(), p.benchControlCommand(), p.benchLocalizeCommand(), p.benchDemoCommand(), p.benchOverheadCommand())
	return c
}

func (p *process) speedCommand(b benchmark) *cobra.Command {
	output := newChoice("table", "json")
	o := speed.Options{Bytes: speed.InputBytes}
	input := size(o.Bytes)
	c := &cobra.Command{
		Use:     b.name,
		Short:   b.short,
		Example: "  sibyl bench " + b.name + " -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Bytes = int(input)
			r, err := b.run(c.Context(), o)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the traces that are generated")
	c.Flags().DurationVar(&o.Time, "time", time.Second, "least time of a measurement")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}

// measured writes figures in the chosen format.
func (p *process) measured(r *speed.Result, output *choice) error {
	if output.value == "json" {
		return r.JSON(p.out)
	}
	return r.Table(p.out)
}

func (p *process) benchIngestCommand() *cobra.Command {
	output := newChoice("table", "json")
	o := speed.IngestOptions{}
	input := size(speed.InputBytes)
	c := &cobra.Command{
		Use:   "ingest",
		Short: "The whole service: from requests over the network to durable and analysed",
		Long: `Starts sibyl serve as a process of its own, with its data in a temporary directory, and sends it requests over gRPC as fast as it takes
them. Both share the machine. What follows -- is given to the server.`,
		Example: "  sibyl bench ingest --time 30s\n  sibyl bench ingest -o json -- --journal-durability process",
		RunE: func(c *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program, o.Args, o.Bytes = program, args, int(input)
			r, err := speed.Ingest(c.Context(), o)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the requests that are generated")
	c.Flags().DurationVar(&o.Time, "time", 20*time.Second, "how long requests are sent")
	c.Flags().IntVar(&o.Senders, "senders", 16, "requests that are waited for at the same time")
	c.Flags().Float64Var(&o.Rate, "rate", 0, "spans per second that are offered; 0: as many as are taken")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}

func (p *process) benchOverloadCommand() *cobra.Command {
	output := newChoice("table", "json")
	o := speed.IngestOptions{}
	factor := 3.0
	input := size(speed.InputBytes)
	c := &cobra.Command{
		Use:   "overload",
		Short: "The whole service when it is offered more than it can take",
		Long: `Starts sibyl serve as a process of its own, on one core, measures what it takes, offers it a multiple of that, and then half of it. Prints what was refused,
how the API answered meanwhile, the server's memory second by second, and when the last request was refused afterwards. What follows -- is given to
the server.`,
		Example: "  sibyl bench overload --time 60s -- --learning 10s",
		RunE: func(c *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program, o.Args, o.Bytes = program, args, int(input)
			r, err := speed.Overload(c.Context(), o, factor)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the requests that are generated")
	c.Flags().DurationVar(&o.Time, "time", 30*time.Second, "how long too much is offered")
	c.Flags().IntVar(&o.Senders, "senders", 16, "requests that are waited for at the same time while the capacity is measured")
	c.Flags().Float64Var(&factor, "factor", factor, "how many times the capacity is offered")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}
