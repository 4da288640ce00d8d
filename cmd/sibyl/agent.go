package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/otlp"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

func agentCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent of Sibyl on this machine, or load one into a program",
		Args:  cli.OnlyCommands,
	}
	c.AddCommand(kernelAgentCommand(p), jvmAgentCommand(p))
	return c
}

// kernelFlags holds the options of the command agent kernel.
type kernelFlags struct {
	output     *cli.Choice
	selection  kernel.Selection
	pids       []uint
	thresholds []string
	classes    []string
	duration   cli.NonNegative
	interval   time.Duration
	children   bool
	stacks     bool
	sums       uint32
	top        int
	otlp       string
	service    string

	sibyl, token string // see steerSettings
	cpuLimit     float64
}

// mostSums is the maximum of --sums. That many sums take 1 GB.
const mostSums = 1 << 22

// defaultThresholds lists the classes of waits that are rarely intended, each with a duration that is long for its
// class.
var defaultThresholds = []string{"file=10ms", "sync=20ms", "fault=10ms", "dns=50ms", "preempted=20ms", "runqueue=10ms"}

func kernelAgentCommand(p *process) *cobra.Command {
	f := &kernelFlags{output: cli.NewChoice("table", "json", "html", "pprof", "folded")}
	c := &cobra.Command{
		Use:   "kernel (--pid P… | --comm NAME | --cgroup PATH | --sibyl URL)",
		Short: "Report why the threads of processes did not run",
		Long: `Kernel observes processes with probes in the kernel of Linux and reports why their threads did not run:
for each thread how often and how long it waited for files, the network, locks and so on, and how long it then waited
for a CPU. The processes need no preparation. Nothing stays in the kernel when the command ends, however it ends.

The time of a thread is divided without gaps: the totals of all classes add up to the time for which it was observed.
  oncpu      on a CPU                                  pipe     pipes and eventfds
  preempted  the kernel gave the CPU to another        epoll    epoll_wait
  runqueue   runnable after a wake-up, not yet on CPU  poll     poll and select
  file       files and folders                         futex    locks and conditions
  sync       fsync and its relatives                   sleep    sleeps, timers, waits for signals
  fault      page faults                               iouring  io_uring
  net        sockets of IP                             child    processes that were started
  dns        sockets connected to port 53              tty      terminals
  unix       sockets of this host                      other    everything else

Without --duration it runs until interrupted: table and json report each --interval, the other formats once at the end.
With --sibyl it reports nothing by itself: Sibyl decides which waits of which services are observed, as it does with all
tracepoints. It then observes processes that name their service in OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES or their
process context (OTEP 4719), all of them or the selected ones, and limits itself to --cpu-limit.

It needs Linux 5.18 or later with BTF, and root, or CAP_BPF and CAP_PERFMON, CAP_SYS_PTRACE for processes of other
users, and CAP_SYS_ADMIN to measure its cost. docs/kernel.md describes the data, the costs and the blind spots.`,
		Example: `  sibyl agent kernel --pid 4711 --duration 10s
  sibyl agent kernel --comm postgres                                # as top does
  sibyl agent kernel --cgroup /system.slice/nginx.service --duration 30s --threshold file=5ms,net=50ms
  sibyl agent kernel --pid 4711 --duration 10s -o folded | flamegraph.pl > waits.svg
  SIBYL_TOKEN=… sibyl agent kernel --sibyl https://sibyl.example.com`,
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.kernelAgent(c, f) },
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().UintSliceVar(&f.pids, "pid", nil, "process IDs")
	c.Flags().StringVar(&f.selection.Comm, "comm", "", "name of processes, as ps -o comm shows it")
	c.Flags().StringVar(&f.selection.Cgroup, "cgroup", "",
		"cgroup of processes: a folder below /sys/fs/cgroup, or its path from there")
	c.Flags().BoolVar(&f.children, "children", false,
		"also observe processes that those of --pid start from now on, as --comm and --cgroup always do")
	c.Flags().Var(&f.duration, "duration", "time to observe; 0: until interrupted")
	c.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "time between reports without --duration")
	c.Flags().StringSliceVar(&f.thresholds, "threshold", defaultThresholds, "duration from which a single wait of a "+
		"class counts as too long; class=0: never; other classes keep their thresholds")
	c.Flags().StringSliceVar(&f.classes, "classes", nil, "classes to observe; default: all")
	c.Flags().BoolVar(&f.stacks, "stacks", true, "sample stacks of waits and of time on the CPU")
	c.Flags().Uint32Var(&f.sums, "sums", 1<<16,
		"maximum number of counters in the kernel, one for each thread, class and system call; 250 bytes each")
	c.Flags().IntVar(&f.top, "top", 10, "number of processes, threads and waits to show in the table; 0: all")
	c.Flags().StringVar(&f.otlp, "otlp", "", "endpoint of a Collector or of Sibyl, host:port or grpcs://host:port "+
		"(TLS), that receives waits above a threshold as children of the spans that waited; default with --sibyl: "+
		"port 4317 of its host")
	c.Flags().StringVar(&f.service, "service", "",
		"with --otlp or --sibyl: service name for selected processes without one")
	p.steerFlags(c, f)
	return c
}

func (p *process) kernelAgent(c *cobra.Command, f *kernelFlags) (err error) {
	if f.sibyl != "" {
		return p.steeredAgent(c, f)
	}
	s, err := f.settings(c.Flags().Changed)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	if err := p.checkKernel(); err != nil {
		return err
	}
	if f.otlp != "" {
		sender, failed := otlp.Open(f.otlp, p.agentToken(f), kernel.SyscallName,
			slog.New(slog.NewTextHandler(p.err, nil)))
		if failed != nil {
			return cli.Usagef("--otlp: %w", failed)
		}
		defer func() { err = errors.Join(err, sender.Close(), unsent(sender.Counts())) }() // err is the result
		if s.Join, err = p.join(f.service, sender.Add); err != nil {
			return err
		}
	}
	return kernel.Observe(c.Context(), s, func(r *waits.Report) error {
		if s.Interval > 0 && f.output.Value == "table" && terminal.Is(p.out) {
			if _, err := io.WriteString(p.out, "\x1b[H\x1b[2J"); err != nil { // like top
				return err
			}
		}
		return f.write(p, r, s.Thresholds)
	})
}

// checkKernel prints a note about each feature that is unavailable because a capability is missing. It returns an error
// if nothing can be observed.
func (p *process) checkKernel() error {
	notes, err := kernel.Check()
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintf(p.err, "sibyl: %s\n", note)
	}
	return nil
}

// join returns the settings for joining waits to spans. The joined waits are passed to send.
func (p *process) join(service string, send func([]join.Wait)) (*kernel.Join, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of this host: %w", err)
	}
	return &kernel.Join{
		Joiner: join.NewJoiner("/proc", service, host),
		Waits:  send,
		Cannot: func(pid uint32, err error) {
			fmt.Fprintf(p.err, "sibyl: waits of process %d are not joined to spans: %s\n",
				pid, terminal.Printable(err.Error()))
		},
	}, nil
}

// unsent returns an error if, according to c, some waits couldn't be sent, or nil otherwise.
func unsent(c otlp.Counts) error {
	if c.Dropped+c.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d waits were sent; %d were refused or not answered, %d came faster than they could be sent",
		c.Sent, c.Failed, c.Dropped)
}

// write writes r in the format selected by --output. It renders the whole report first, so that it never writes part of
// one.
func (f *kernelFlags) write(p *process, r *waits.Report, thresholds waits.Thresholds) error {
	var whole bytes.Buffer
	var err error
	switch f.output.Value {
	case "json":
		err = report.WaitsJSON(&whole, r)
	case "html":
		err = report.WaitsHTML(&whole, r, thresholds)
	case "pprof":
		err = report.WaitsPprof(&whole, r)
	case "folded":
		err = report.WaitsFolded(&whole, r)
	default:
		err = report.WaitsTable(&whole, r, thresholds, terminal.Of(p.out, p.getenv), f.top)
	}
	if err != nil {
		return err
	}
	_, err = whole.WriteTo(p.out)
	return err
}

// ineffective returns an error if any of the given flags has no effect in combination with the others.
func (f *kernelFlags) ineffective(given func(flag string) bool) error {
	switch {
	case given("cpu-limit"):
		return errors.New("--cpu-limit needs --sibyl: without it, the report only shows the cost")
	case given("service") && f.otlp == "":
		return errors.New("--service needs --otlp or --sibyl")
	case given("token") && f.otlp == "":
		return errors.New("--token needs --otlp or --sibyl")
	case given("children") && len(f.pids) == 0:
		return errors.New("--children needs --pid: --comm and --cgroup include children")
	case given("interval") && f.duration > 0:
		return errors.New("--interval has no effect with --duration: there is one report at the end")
	case given("interval") && !f.continuous():
		return fmt.Errorf("--interval has no effect with -o %s: there is one report at the end", f.output.Value)
	case given("top") && f.output.Value != "table":
		return fmt.Errorf("--top has no effect with -o %s", f.output.Value)
	}
	return nil
}

// continuous reports whether the output format allows several reports, one after the other.
func (f *kernelFlags) continuous() bool { return f.output.Value == "table" || f.output.Value == "json" }

// settings returns the settings of the observation that the flags select. given reports whether a flag was given.
func (f *kernelFlags) settings(given func(flag string) bool) (kernel.Settings, error) {
	s := kernel.Settings{
		Selection: f.selection, Classes: waits.All, Stacks: f.stacks, Children: f.children,
		Duration: time.Duration(f.duration), Options: kernel.Options{Sums: f.sums},
	}
	selections, err := f.selections()
	if err != nil {
		return s, err
	}
	if selections == 0 {
		return s, errSelections
	}
	s.Selection = f.selection
	if err := f.ineffective(given); err != nil {
		return s, err
	}
	if f.sums == 0 || f.sums > mostSums || f.top < 0 || f.interval < 100*time.Millisecond {
		return s, fmt.Errorf("--sums must be from 1 to %d, --top not negative, and --interval at least 100ms", mostSums)
	}
	if s.Duration == 0 && f.continuous() {
		s.Interval = f.interval
	}
	if len(f.classes) > 0 {
		s.Classes = 0
		for _, name := range f.classes {
			class, err := waits.ParseClass(name)
			if err != nil {
				return s, fmt.Errorf("--classes: %w", err)
			}
			s.Classes = s.Classes.With(class)
		}
	}
	if err := parseThresholds(defaultThresholds, &s.Thresholds); err != nil { // for classes that the flag doesn't name
		return s, err
	}
	return s, parseThresholds(f.thresholds, &s.Thresholds)
}

var errSelections = errors.New("select processes with one of --pid, --comm and --cgroup")

// selections copies --pid to the selection, and returns how many of --pid, --comm and --cgroup are given: 0 or 1. It
// returns an error if more than one is given or a PID is invalid.
func (f *kernelFlags) selections() (n int, err error) {
	for _, given := range []bool{len(f.pids) > 0, f.selection.Comm != "", f.selection.Cgroup != ""} {
		if given {
			n++
		}
	}
	if n > 1 {
		return n, errSelections
	}
	for _, pid := range f.pids {
		if pid == 0 || pid > math.MaxInt32 {
			return n, fmt.Errorf("--pid %d: want the ID of a process", pid)
		}
		f.selection.PIDs = append(f.selection.PIDs, uint32(pid))
	}
	return n, nil
}

// parseThresholds parses args like "file=10ms", and sets the thresholds in t that they name.
func parseThresholds(args []string, t *waits.Thresholds) error {
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, "=")
		class, err := waits.ParseClass(name)
		if err != nil {
			return fmt.Errorf("--threshold %q: %w", arg, err)
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("--threshold %q: want a class and a duration like file=10ms", arg)
		}
		t[class] = uint64(d)
	}
	return nil
}
