package main

import (
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/throughput"
)

// benchmark is a benchmark of one part; all take the same flags.
type benchmark struct {
	name, short string
	run         func(context.Context, throughput.Options) (*throughput.Result, error)
}

var benchmarks = []benchmark{
	{"path", "Extraction of critical paths", throughput.Path},
	{"decode", "Decoders of OTLP, ours and the collector's", throughput.Decode},
	{"group", "Grouping, its memory, and the whole way from bytes to statistics", throughput.Group},
	{"open", "Memory of spans whose traces are open, for each span", throughput.Open},
	{"search", "A decision over a large tree, for every strategy", throughput.Search},
	{"size-model", "How well delayed transfers are told from normal ones", throughput.SizeModel},
}

func (p *process) partCommand(b benchmark) *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.Options{Bytes: throughput.InputBytes}
	input := cli.Size(o.Bytes)
	c := &cobra.Command{
		Use:     b.name,
		Short:   b.short,
		Example: "  sibylbench " + b.name + " -o json",
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
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the traces that are generated")
	c.Flags().DurationVar(&o.Time, "time", time.Second, "least time of a measurement")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}

// measured writes figures in the chosen format.
func (p *process) measured(r *throughput.Result, output *cli.Choice) error {
	if output.Value == "json" {
		return r.JSON(p.out)
	}
	return r.Table(p.out)
}

func (p *process) ingestCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.IngestOptions{}
	input := cli.Size(throughput.InputBytes)
	c := &cobra.Command{
		Use:   "ingest",
		Short: "The whole service: from requests over the network to durable and analysed",
		Long: `Starts sibyl serve as a process of its own, with its data in a temporary directory, and sends it requests over gRPC as fast as it takes
them. Both share the machine. What follows -- is given to the server.`,
		Example: "  sibylbench ingest --time 30s\n  sibylbench ingest -o json -- --journal-durability process",
		RunE: func(c *cobra.Command, args []string) error {
			program, err := p.findSibyl()
			if err != nil {
				return err
			}
			o.Program, o.Args, o.Bytes = program, args, int(input)
			r, err := throughput.Ingest(c.Context(), o)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the requests that are generated")
	c.Flags().DurationVar(&o.Time, "time", 20*time.Second, "how long requests are sent")
	c.Flags().IntVar(&o.Senders, "senders", 16, "requests that are waited for at the same time")
	c.Flags().Float64Var(&o.Rate, "rate", 0, "spans per second that are offered; 0: as many as are taken")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}

func (p *process) overloadCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.IngestOptions{}
	factor := 3.0
	input := cli.Size(throughput.InputBytes)
	c := &cobra.Command{
		Use:   "overload",
		Short: "The whole service when it is offered more than it can take",
		Long: `Starts sibyl serve as a process of its own, on one core, measures what it takes, offers it a multiple of that, and then half of it. Prints what was refused,
how the API answered meanwhile, the server's memory second by second, and when the last request was refused afterwards. What follows -- is given to
the server.`,
		Example: "  sibylbench overload --time 60s -- --learning 10s",
		RunE: func(c *cobra.Command, args []string) error {
			program, err := p.findSibyl()
			if err != nil {
				return err
			}
			o.Program, o.Args, o.Bytes = program, args, int(input)
			r, err := throughput.Overload(c.Context(), o, factor)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the requests that are generated")
	c.Flags().DurationVar(&o.Time, "time", 30*time.Second, "how long too much is offered")
	c.Flags().IntVar(&o.Senders, "senders", 16, "requests that are waited for at the same time while the capacity is measured")
	c.Flags().Float64Var(&factor, "factor", factor, "how many times the capacity is offered")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generated traces")
	return c
}
