package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/cluster"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func (p *process) clusterCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := cluster.Options{}
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Replicas over real brokers, while leader, standby and brokers are killed",
		Long: `Starts three brokers of Kafka, three replicas of sibyl serve, and one process that is alone, all on
loopback, and sends them the traces of a simulated application, first those of an hour at once. Then a fault begins,
and the leader, a standby and a broker are killed and started again, and the leader is frozen. At the end it compares the
replicas with one another and with the process that was alone, and fails if a trace was lost or counted twice, or if
replicas differ.

It needs java and mvn, and installs Kafka from Maven's registry below a cache folder. Arguments after -- are passed to
all processes of Sibyl.`,
		Example: `  sibylbench cluster -o json
  sibylbench cluster --disturb leader,broker -- --memory 1GiB`,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.Sibyl, err = p.findSibyl(); err != nil {
				return err
			}
			for _, x := range o.Disturb {
				if !slices.Contains(cluster.Disturbances(), x) {
					return cli.Usagef("--disturb: no %q, want some of %s", x,
						strings.Join(cluster.Disturbances(), ", "))
				}
			}
			o.Arguments, o.Progress = args, p.err
			r, err := cluster.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if output.Value == "json" {
				err = benchreport.JSON(p.out, r)
			} else {
				err = r.Table(p.out)
			}
			return errors.Join(err, r.Err())
		},
	}
	output.Flag(c, "output", "o", "format of the result")
	flags := c.Flags()
	flags.StringVar(&o.Cache, "cache", "",
		"folder of the installed brokers; empty: sibylbench in the user's cache folder")
	flags.Uint64Var(&o.Seed, "seed", 3, "seed of the traces")
	flags.Float64Var(&o.Rate, "rate", 30, "traces a second")
	flags.DurationVar(&o.Past, "past", time.Hour, "past of the application, which is sent at once")
	flags.DurationVar(&o.Learn, "learn", 90*time.Second, "time before the fault")
	flags.StringSliceVar(&o.Disturb, "disturb", cluster.Disturbances(), "what to kill or freeze, one after the other")
	flags.DurationVar(&o.Watch, "watch", 2*time.Minute, "time after the last disturbance")
	return c
}
