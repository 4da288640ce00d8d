package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func backupCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "Copy the data of a running service, consistently",
		Long: `Backup makes a running sibyl serve copy its data, with hard links, to the directory backup in its data
directory, and prints the name of that directory on the machine of the service. It replaces the previous backup. The
copy has everything that was acknowledged before. It needs a token of the role admin, once a token exists.

Copy the directory to another machine, then delete it: until then its files take up space. To restore, stop the service,
replace the contents of its data directory by those of the copy, and start it.`,
		Example: `  B=$(sibyl backup) && tar -C "$B" -czf sibyl.tar.gz .`,
		Args:    cli.Arguments(0, 0),
	}
	server := p.addServerFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		api, err := server.client(p)
		if err != nil {
			return err
		}
		dir, err := client.Admin{Client: api}.BackUp(c.Context())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.out, dir)
		return err
	}
	return c
}
