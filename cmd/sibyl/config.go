package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

func configCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, or print the configuration in effect",
		Args:  cli.OnlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(configCheckCommand(p), configPrintCommand(p))
	return c
}

func configCheckCommand(p *process) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Report every error in a configuration file",
		Long: `Check reports every error in a configuration file, with its line and a remedy. It prints nothing if the
file is valid. It reads neither the environment nor the files that the configuration names.

Exit codes: 0 valid, 1 errors found, 2 wrong usage.`,
		Example: "  sibyl config check /etc/sibyl/sibyl.yaml",
		Args: func(_ *cobra.Command, files []string) error {
			if file != "" {
				files = append(files, file)
			}
			if len(files) != 1 || files[0] == "" {
				return errors.New("FILE is missing: name a configuration file, such as /etc/sibyl/sibyl.yaml")
			}
			file = files[0]
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			e, err := config.Load(config.Sources{File: file})
			if err != nil {
				return p.printConfigErrors(err)
			}
			for _, l := range e.Config.Exposed() {
				fmt.Fprintf(p.err, "sibyl: note: %s: %s: reachable from other machines, so sibyl serve requires a "+
					"token to exist\n", e.Origin(l.Key), l.Key)
			}
			return nil
		},
	}
	c.Flags().StringVar(&file, "config", "", "the same as FILE, as sibyl serve has it")
	return c
}

func configPrintCommand(p *process) *cobra.Command {
	output := cli.NewChoice("yaml", "json")
	c := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in effect, with comments",
		Long: `Print writes the configuration that sibyl serve would have with the same flags and environment: as
YAML, with comments that explain each key and name the source of its value, or as JSON. Secrets are hidden.`,
		Example: `  sibyl config print > sibyl.yaml            a file to start from
  sibyl config print --config sibyl.yaml     the effect of that file`,
		Args: noFile,
	}
	output.Flag(c, "output", "o", "format")
	flags := config.AddFlags(c.Flags(), cli.FlagGroup)
	c.RunE = func(*cobra.Command, []string) error {
		e, err := config.Load(config.Sources{Getenv: p.getenv, Flags: flags})
		if err != nil {
			return p.printConfigErrors(err)
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

// noFile is a [cobra.PositionalArgs] that rejects arguments, with a hint for people who pass a configuration file
// without --config.
func noFile(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; a configuration file is read with %s --config FILE",
		args[0], c.CommandPath())
}

// printConfigErrors prints the errors in err, one per line, if err is a [config.Errors], and returns an error that
// counts them. It returns other errors unchanged.
func (p *process) printConfigErrors(err error) error {
	all, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for _, e := range all {
		fmt.Fprintln(p.err, terminal.Printable(e.Error()))
	}
	err = fmt.Errorf("%s in the configuration", units.Plural(len(all), "error"))
	if all.Usage() {
		return cli.UsageError{Err: err}
	}
	return err
}
