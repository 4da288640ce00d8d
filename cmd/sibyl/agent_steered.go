package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/otlp"
	"github.com/sibyl-trace/sibyl/agents/kernel/steer"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// steerFlags adds the flags of an agent that Sibyl steers to c.
func (p *process) steerFlags(c *cobra.Command, f *kernelFlags) {
	c.Flags().StringVar(&f.sibyl, "sibyl", "",
		"URL of Sibyl, which then decides what is observed, like http://127.0.0.1:8321")
	c.Flags().StringVar(&f.token, "token", "",
		"token with the role agent, for --sibyl and --otlp; prefer SIBYL_TOKEN, which the process list does not show")
	c.Flags().Float64Var(&f.cpuLimit, "cpu-limit", 100*steer.DefaultCPULimit,
		"with --sibyl: percent of the machine's CPUs that agent and probes may use together; 0: no limit")
}

// steeredAgent runs the agent under the control of Sibyl, until it is interrupted.
func (p *process) steeredAgent(c *cobra.Command, f *kernelFlags) (err error) {
	s, err := p.steerSettings(c, f)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	if err := p.checkKernel(); err != nil {
		return err
	}
	sender, err := otlp.Open(f.otlp, s.Token, kernel.SyscallName, s.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sender.Close(), unsent(sender.Counts())) }()
	s.Send, s.Unsent = sender.Add, sender.Unsent
	return steer.Run(c.Context(), s)
}

// agentToken returns the token from --token or SIBYL_TOKEN, or "" if neither is set.
func (p *process) agentToken(f *kernelFlags) string { return cmp.Or(f.token, p.getenv("SIBYL_TOKEN")) }

// otlpPort is the default port of Sibyl and Collectors for traces over gRPC.
const otlpPort = "4317"

// reporting lists the flags that only apply to reports, not to a steered agent.
var reporting = []string{"output", "children", "duration", "interval", "classes", "top"}

func (p *process) steerSettings(c *cobra.Command, f *kernelFlags) (steer.Settings, error) {
	for _, name := range reporting {
		if c.Flags().Changed(name) {
			return steer.Settings{}, fmt.Errorf("--%s has no effect with --sibyl", name)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return steer.Settings{}, err
	}
	s := steer.Settings{
		Endpoint: f.sibyl,
		Token:    p.agentToken(f),
		ID:       "kernel@" + host,
		Host:     host,
		Service:  f.service,
		Stacks:   f.stacks,
		CPULimit: f.cpuLimit / 100,
		Options:  kernel.Options{Sums: f.sums},
		Logger:   slog.New(slog.NewTextHandler(p.err, nil)),
	}
	u, err := url.Parse(f.sibyl)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return s, fmt.Errorf("--sibyl %q: want a URL like http://127.0.0.1:8321", f.sibyl)
	}
	if f.otlp == "" {
		f.otlp = net.JoinHostPort(u.Hostname(), otlpPort)
		if u.Scheme == "https" {
			f.otlp = "grpcs://" + f.otlp
		}
	}
	selections, err := f.selections()
	switch {
	case err != nil:
		return s, err
	case selections == 0 && f.service != "":
		return s, errors.New("--service needs --pid, --comm or --cgroup: it would apply to all processes")
	case f.sums == 0 || f.sums > mostSums || !(f.cpuLimit >= 0): // also excludes NaN
		return s, fmt.Errorf("--sums must be from 1 to %d, and --cpu-limit not negative", mostSums)
	}
	s.Selection, s.Everything = f.selection, selections == 0
	s.Thresholds = steer.DefaultThresholds()
	if c.Flags().Changed("threshold") {
		err = parseThresholds(f.thresholds, &s.Thresholds)
	}
	return s, err
}
