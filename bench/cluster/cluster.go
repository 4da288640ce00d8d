// Package cluster measures replicas of Sibyl over real brokers: three brokers of Kafka and three replicas run on this
// machine, beside one process that is alone and gets the same traces. While a fault is in the traces, the leader, a
// standby and a broker are killed and the leader is frozen. All replicas must count the same requests and raise the
// same incidents as the process that is alone.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure [Run].
type Options struct {
	Sibyl string        // path of the program
	Cache string        // folder of Kafka's jars; empty: sibylbench in the user's cache folder
	Seed  uint64        // of the traces
	Rate  float64       // traces a second
	Past  time.Duration // of the traces that are sent at once, so that the replicas have a history
	Learn time.Duration // time before the fault begins
	// Disturb lists the disturbances, of [Disturbances].
	Disturb []string
	Watch   time.Duration // time after the last disturbance; an incident is raised within two minutes
	// Arguments are further arguments of all processes of Sibyl.
	Arguments []string
	Progress  io.Writer
}

// Result is the outcome of [Run].
type Result struct {
	Conformance Conformance `json:"conformance"`
	Chaos       []Kill      `json:"chaos"`
	// CPURatio divides the CPU time of the three replicas, without the brokers, by that of the process that was alone.
	CPURatio float64  `json:"cpu_ratio_three_to_one"`
	RSS      int64    `json:"rss_bytes"` // of the three replicas together, at the end
	Skipped  []string `json:"skipped"`   // parts that were left out, with reasons
}

// Conformance compares the three replicas with one another and with the process that was alone.
type Conformance struct {
	Traces       int64    `json:"traces"`       // acknowledged by the replicas
	TracesAlone  int64    `json:"traces_one"`   // acknowledged by the process that was alone
	Counted      []int64  `json:"counted"`      // requests, by replica; some traces have several
	Alone        int64    `json:"counted_one"`  // requests counted by the process that was alone
	Differences  int      `json:"differences"`  // lists of incidents, problems, decisions and groups that differ
	Suspects     []string `json:"suspects"`     // first suspect of each incident of the replicas
	SuspectAlone []string `json:"suspects_one"` // the same of the process that was alone
}

// Kill is one disturbance. Acknowledged and Counted are totals when it was over.
type Kill struct {
	Killed        string  `json:"killed"`
	Acknowledged  int64   `json:"acknowledged"`
	Counted       int64   `json:"counted"`
	Seconds       float64 `json:"seconds_to_next_decision"`
	IncidentsSame bool    `json:"incidents_equal"` // at all replicas
}

// Disturbances returns all disturbances.
func Disturbances() []string {
	return []string{"leader", "standby", "broker", "frozen leader", "leader and broker"}
}

// Times of a run.
const (
	beforeKill = 10 * time.Second
	afterKill  = 30 * time.Second
	// settles is the time after the last trace until all traces are closed and counted.
	settles = 45 * time.Second
	// mostWait is the maximum time until a replica makes a decision.
	mostWait = 2 * time.Minute
)

// Run runs the benchmark. It takes Options.Learn, Options.Watch, about 50 s for each disturbance, and a minute.
func Run(ctx context.Context, o Options) (*Result, error) {
	dir, err := os.MkdirTemp("", "sibyl-cluster-*")
	if err != nil {
		return nil, err
	}
	r, err := run(ctx, o, dir)
	if err != nil {
		return nil, fmt.Errorf("%w; the logs are in %s", err, dir)
	}
	return r, os.RemoveAll(dir)
}

// bench is a run of the benchmark.
type bench struct {
	Options
	brokers  *brokers
	replicas []*replica
	alone    *replica
	load     *load
}

func run(ctx context.Context, o Options, dir string) (*Result, error) {
	if o.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		o.Cache = filepath.Join(cache, "sibylbench")
	}
	b := &bench{Options: o}
	var err error
	b.say("starting three brokers of Kafka %s", kafkaVersion)
	b.brokers, err = startBrokers(ctx, dir, o.Cache)
	if b.brokers != nil {
		defer b.brokers.stop()
	}
	if err != nil {
		return nil, err
	}
	clustered := append(slices.Clone(o.Arguments), "--cluster-brokers", b.brokers.addresses())
	for i := range 3 {
		x, err := newReplica(ctx, o.Sibyl, filepath.Join(dir, fmt.Sprint("replica", i)), clustered...)
		if err != nil {
			return nil, err
		}
		b.replicas = append(b.replicas, x)
	}
	if b.alone, err = newReplica(ctx, o.Sibyl, filepath.Join(dir, "alone"), o.Arguments...); err != nil {
		return nil, err
	}
	all := append(slices.Clone(b.replicas), b.alone)
	for _, x := range all {
		if err := x.start(ctx); err != nil {
			return nil, err
		}
		defer func() { _ = x.cmd.Process.Kill() }() // has exited unless there was an error
	}
	b.load = newLoad(o.Seed, o.Rate, b.replicas, b.alone)
	if err := b.await(ctx, func() bool { return b.leader(ctx) != nil && b.alone.ready(ctx) }); err != nil {
		return nil, fmt.Errorf("no replica leads: %w", err)
	}
	result, err := b.play(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range b.replicas {
		result.RSS += x.memory()
	}
	var cpu time.Duration
	for _, x := range all {
		x.end(syscall.SIGTERM)
	}
	for _, x := range b.replicas {
		cpu += x.cpu
	}
	result.CPURatio = cpu.Seconds() / b.alone.cpu.Seconds()
	return result, nil
}

// play sends the traces, disturbs the replicas, and compares them at the end.
func (b *bench) play(ctx context.Context) (*Result, error) {
	result := &Result{Skipped: []string{}}
	sending, stop := context.WithCancel(ctx)
	inject, sent := make(chan trace.Nanos, 1), make(chan error, 1)
	go func() { sent <- b.load.run(sending, b.Past, inject) }()
	b.say("sending the past, then the present for %s", b.Learn)
	sleep(ctx, b.Learn)
	inject <- trace.Nanos(time.Now().UnixNano())
	for _, name := range b.Disturb {
		sleep(ctx, beforeKill)
		k, err := b.disturb(ctx, name)
		if err != nil {
			stop()
			return nil, errors.Join(err, <-sent)
		}
		b.say("%s: next decision after %.1f s", name, k.Seconds)
		result.Chaos = append(result.Chaos, *k)
	}
	sleep(ctx, b.Watch)
	stop()
	if err := <-sent; err != nil {
		return nil, err
	}
	b.say("all traces are sent")
	sleep(ctx, settles)
	return result, b.compare(ctx, &result.Conformance)
}

// disturb kills or freezes a process and starts it again.
func (b *bench) disturb(ctx context.Context, name string) (*Kill, error) {
	leader := b.leader(ctx)
	if leader == nil {
		return nil, errors.New("no replica leads")
	}
	standby := b.replicas[slices.IndexFunc(b.replicas, func(x *replica) bool { return x != leader })]
	began := time.Now()
	var restore func() error
	switch name {
	case "leader":
		leader.end(syscall.SIGKILL)
		restore = func() error { return leader.start(ctx) }
	case "standby":
		standby.end(syscall.SIGKILL)
		restore = func() error { return standby.start(ctx) }
	case "broker":
		b.brokers.kill(0)
		restore = func() error { return b.brokers.start(ctx, 0) }
	case "leader and broker":
		b.brokers.kill(1)
		leader.end(syscall.SIGKILL)
		restore = func() error { return errors.Join(b.brokers.start(ctx, 1), leader.start(ctx)) }
	default:
		leader.signal(syscall.SIGSTOP)
		restore = func() error { leader.signal(syscall.SIGCONT); return nil }
	}
	frozen := func(x *replica) bool { return name == "frozen leader" && x == leader }
	err := b.await(ctx, func() bool {
		for _, x := range b.replicas {
			if !frozen(x) && x.metric(ctx, "sibyl_epoch_end_seconds") > float64(began.Unix()) {
				return true
			}
		}
		return false
	})
	k := &Kill{Killed: name, Seconds: time.Since(began).Seconds()}
	if err = errors.Join(err, restore()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	sleep(ctx, afterKill)
	if err := b.await(ctx, func() bool { return b.leader(ctx) != nil }); err != nil {
		return nil, fmt.Errorf("%s: no replica leads: %w", name, err)
	}
	k.Acknowledged = b.load.acknowledged.Load()
	k.Counted, _ = b.leader(ctx).counted(ctx) // 0 if it doesn't answer
	different, err := b.differences(ctx, documents[:1])
	k.IncidentsSame = different == 0
	return k, err
}

// compare fills in c once all traces are counted.
func (b *bench) compare(ctx context.Context, c *Conformance) (err error) {
	c.Traces, c.TracesAlone = b.load.acknowledged.Load(), b.load.single.Load()
	for _, x := range b.replicas {
		n, err := x.counted(ctx)
		if err != nil {
			return err
		}
		c.Counted = append(c.Counted, n)
	}
	if c.Alone, err = b.alone.counted(ctx); err != nil {
		return err
	}
	if c.Differences, err = b.differences(ctx, documents); err != nil {
		return err
	}
	if c.Suspects, err = b.replicas[0].suspects(ctx); err != nil {
		return err
	}
	c.SuspectAlone, err = b.alone.suspects(ctx)
	return err
}

// differences returns how many of the lists at paths differ between the replicas. It reads all of them in the same
// epoch, and again if an epoch ended in between.
func (b *bench) differences(ctx context.Context, paths []string) (n int, err error) {
	for range 10 {
		if n, err = b.differ(ctx, paths); err == nil && n == 0 {
			return 0, nil
		}
		sleep(ctx, time.Second)
	}
	return n, err
}

func (b *bench) differ(ctx context.Context, paths []string) (n int, err error) {
	for _, path := range paths {
		var first []byte
		for i, x := range b.replicas {
			var list map[string]json.RawMessage
			if err := x.get(ctx, path, &list); err != nil {
				return 0, err
			}
			if items := list["items"]; i == 0 {
				first = items
			} else if !bytes.Equal(items, first) {
				n++
				break
			}
		}
	}
	return n, nil
}

// leader returns the replica that leads, or nil.
func (b *bench) leader(ctx context.Context) *replica {
	for _, x := range b.replicas {
		if x.ready(ctx) {
			return x
		}
	}
	return nil
}

// await waits until holds returns true.
func (b *bench) await(ctx context.Context, holds func() bool) error {
	for until := time.Now().Add(mostWait); !holds(); sleep(ctx, batch/2) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(until):
			return fmt.Errorf("nothing happened for %s", mostWait)
		}
	}
	return nil
}

// Err returns an error unless the replicas acknowledged and counted exactly as much as the process that was alone, and
// all replicas are equal.
func (r *Result) Err() error {
	c := &r.Conformance
	if c.Traces != c.TracesAlone {
		return fmt.Errorf("the replicas acknowledged %d traces, the process that was alone %d", c.Traces, c.TracesAlone)
	}
	for _, n := range c.Counted {
		if n != c.Alone {
			return fmt.Errorf("the replicas counted %v requests, the process that was alone %d", c.Counted, c.Alone)
		}
	}
	if c.Differences > 0 {
		return fmt.Errorf("%d lists differ between the replicas", c.Differences)
	}
	return nil
}

// say writes a line of progress.
func (b *bench) say(format string, values ...any) {
	if b.Progress != nil {
		fmt.Fprintf(b.Progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", values...)
	}
}

// Table writes r for people.
func (r *Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "killed\tacknowledged\tcounted\tnext decision\tincidents equal")
	for _, k := range r.Chaos {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f s\t%t\n", k.Killed, k.Acknowledged, k.Counted, k.Seconds, k.IncidentsSame)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c := &r.Conformance
	_, err := fmt.Fprintf(w, `
%d traces acknowledged, by the process that was alone %d; requests counted: %v, alone: %d
%d of %d lists differ between the replicas
first suspects: %s; alone: %s
three replicas took %.2f times the CPU of one process, and %d MiB in all
`, c.Traces, c.TracesAlone, c.Counted, c.Alone, c.Differences, len(documents), names(c.Suspects), names(c.SuspectAlone), r.CPURatio,
		r.RSS>>20)
	return err
}

func names(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
