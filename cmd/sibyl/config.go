package main

import (
	"bufio"
	"errors"
	"fmt"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

func (p *process) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, or print what is in effect",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.configCheckCommand(), p.configPrintCommand())
	return c
}

func (p *process) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say everything that is wrong with a configuration file",
		Long: `Says everything that is wrong with a configuration file, with line and remedy; nothing if it can be used. The environment is not
looked at, nor are the files that the file names.

Exit codes: 0 it can be used, 1 something is wrong, 2 wrong usage.`,
		Example: "  sibyl config check /etc/sibyl/sibyl.yaml",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) != 1 || files[0] == "" {
				return errors.New("which FILE? Name one")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, files []string) error {
			e, err := config.Load(config.Sources{File: files[0]})
			if err != nil {
				return p.mistaken(err)
			}
			for _, l := range e.Config.Exposed() {
				fmt.Fprintf(p.err, "sibyl: note: %s: %s: is reachable from other machines: sibyl serve needs a token to exist\n", e.Origin(l.Key), l.Key)
			}
			return nil
		},
	}
}

func (p *process) configPrintCommand() *cobra.Command {
	output := cli.NewChoice("yaml", "json")
	c := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in effect, with comments",
		Long: `Prints the configuration that sibyl serve would have with the same flags and environment: as YAML with comments that say what each
key does and where its value comes from, or as JSON. Secrets are hidden.`,
		Example: `  sibyl config print > sibyl.yaml            a file to begin with
  sibyl config print --config sibyl.yaml     what that file leads to`,
		Args: cobra.NoArgs,
	}
	output.Flag(c, "output", "o", "format")
	flags := config.AddFlags(c.Flags())
	c.RunE = func(*cobra.Command, []string) error {
		e, err := config.Load(config.Sources{Getenv: p.getenv, Flags: flags})
		if err != nil {
			return p.mistaken(err)
		}
		out := bufio.NewWriter(p.out)
		write := e.Print
		if output.Value == "json" {
			write = e.JSON
		}
		return errors.Join(write(out), out.Flush())
	}
	return c
}

// mistaken tells all mistakes of a configuration, one per line, and returns an error that sums them up.
func (p *process) mistaken(err error) error {
	mistakes, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for _, m := range mistakes {
		fmt.Fprintln(p.err, terminal.Printable(m.Error()))
	}
	err = fmt.Errorf("%s in the configuration", units.Plural(len(mistakes), "mistake"))
	if mistakes.Usage() {
		return cli.UsageError{Err: err}
	}
	return err
}
