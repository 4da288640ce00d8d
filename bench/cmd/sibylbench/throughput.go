package main

import (
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/throughput"
)

// benchmark is a benchmark of one part. All of them take the same flags.
type benchmark struct {
	name, short string
	run         func(context.Context, throughput.Options) (*throughput.Result, error)
}

var benchmarks = []benchmark{
	{"path", "Speed of the extraction of critical paths", throughput.Path},
	{"decode", "Speed of OTLP decoders, Sibyl's and the Collector's", throughput.Decode},
	{"group", "Speed and memory of grouping, and speed from encoded requests to statistics", throughput.Group},
	{"open", "Memory per span of open traces", throughput.Open},
	{"search", "Time of a decision over a large tree, for each strategy", throughput.Search},
	{"kernel", "Cost of the kernel agent for processes that switch threads as often as possible", throughput.Kernel},
	{"kernel-http", "Cost of the kernel agent for requests to a Go service over HTTP", throughput.KernelHTTP},
	{"size-model", "Accuracy of separating delayed transfers from normal ones", throughput.SizeModel},
}

// kernelService returns the hidden command that runs the service of the benchmark kernel-http.
func (p *process) kernelService() *cobra.Command {
	return &cobra.Command{
		Use:    throughput.ServiceCommand,
		Hidden: true,
		Args:   cli.Arguments(0, 0),
		Short:  "Serve requests until the end of standard input",
		RunE:   func(*cobra.Command, []string) error { return throughput.Serve(p.in, p.out) },
	}
}

func (p *process) partCommand(b benchmark) *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.Options{Bytes: throughput.InputBytes}
	input := cli.Size(o.Bytes)
	c := &cobra.Command{
		Use:     b.name,
		Short:   b.short,
		Example: "  sibylbench " + b.name + " -o json",
		Args:    cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Bytes = int(input)
			r, err := b.run(c.Context(), o)
			if err != nil {
				return err
			}
			return p.write(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the generated traces")
	c.Flags().DurationVar(&o.Time, "time", time.Second, "least time of a measurement")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the generated traces")
	return c
}

// write writes a result in the chosen format.
func (p *process) write(r *throughput.Result, output *cli.Choice) error {
	if output.Value == "json" {
		return r.JSON(p.out)
	}
	return r.Table(p.out)
}

func (p *process) ingestCommand() *cobra.Command {
	c, o := p.serviceCommand(throughput.Ingest)
	c.Use = "ingest"
	c.Short = "Throughput of the whole service, from requests over the network to durable and analysed"
	c.Long = `Starts sibyl serve with a temporary data directory and sends it requests over gRPC as fast as it accepts
them. It measures once the learning period, of ten seconds, is over, and waits at the end until no trace is open. With
--against, another build of sibyl runs at the same time and gets the same requests: the ratios of both, with 95 %
intervals, do not depend on other work on the machine. Servers and load generator share the machine. Arguments after
-- are passed to the servers.`
	c.Example = `  sibylbench ingest
  sibylbench ingest --against /tmp/sibyl-before
  sibylbench ingest -o json -- --journal-durability process`
	c.Flags().DurationVar(&o.Time, "time", 75*time.Second, "duration of the load after the learning period")
	c.Flags().StringVar(&o.Against, "against", "", "path of another build of sibyl, to compare with")
	c.Flags().IntVar(&o.Senders, "senders", 16, "concurrent requests")
	c.Flags().Float64Var(&o.Rate, "rate", 0, "offered spans per second; 0: unlimited")
	return c
}

func (p *process) overloadCommand() *cobra.Command {
	factor := 3.0
	c, o := p.serviceCommand(func(ctx context.Context, o throughput.IngestOptions) (*throughput.Result, error) {
		return throughput.Overload(ctx, o, factor)
	})
	c.Use = "overload"
	c.Short = "Behaviour of the whole service beyond its capacity"
	c.Long = `Starts sibyl serve on one core, measures its capacity, then offers a multiple of the capacity, and
finally half of it. Prints the number of refused requests, the latency of the API and the server's memory during the
overload, and the time of the last refusal after it. Arguments after -- are passed to the server.`
	c.Example = "  sibylbench overload --time 60s -- --learning 10s"
	c.Flags().DurationVar(&o.Time, "time", 30*time.Second, "duration of the overload")
	c.Flags().IntVar(&o.Senders, "senders", 16, "concurrent requests while the capacity is measured")
	c.Flags().Float64Var(&factor, "factor", factor, "offered load as a multiple of the capacity")
	return c
}

// serviceCommand returns a command that measures the whole service, and the options that its flags set.
func (p *process) serviceCommand(
	measure func(context.Context, throughput.IngestOptions) (*throughput.Result, error),
) (*cobra.Command, *throughput.IngestOptions) {
	output := cli.NewChoice("table", "json")
	o := &throughput.IngestOptions{}
	input := cli.Size(throughput.InputBytes)
	c := &cobra.Command{
		RunE: func(c *cobra.Command, args []string) error {
			program, err := p.findSibyl()
			if err != nil {
				return err
			}
			o.Program, o.Args, o.Bytes = program, args, int(input)
			r, err := measure(c.Context(), *o)
			if err != nil {
				return err
			}
			return p.write(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&input, "input", "size of the generated requests")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the generated traces")
	return c, o
}
