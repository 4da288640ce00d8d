package estate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options configures a run.
type Options struct {
	Program     string // path of a program whose command ReaperCommand calls Reap
	Sibyl       string // path of the sibyl program
	Environment []string
	Cache       string // folder of installed packages
	Seed        uint64 // of the faults and the requests
	Faults      int
	Learn       time.Duration // healthy time before the first fault
	Window      time.Duration // duration of a fault
	Between     time.Duration // healthy time after each fault
	Quiet       time.Duration // healthy time instead of faults; 0: faults
	Record      string        // folder of a recording; "": none
	Only        []string      // programs; empty: all
	Rate        float64       // requests per second
	Out         io.Writer     // progress
}

// Run installs and starts the estate, injects the faults and returns the report. It stops all programs, also after an
// error or a panic. If ctx ends, it returns the cause.
func Run(ctx context.Context, o *Options) (_ *Report, err error) {
	if o.Cache, err = filepath.Abs(o.Cache); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "sibylbench-estate-*")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(root, 0o755); err != nil { // PostgreSQL runs as another user
		return nil, errors.Join(err, os.RemoveAll(root))
	}
	r, err := startReaper(o.Program, root)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}
	defer func() { err = errors.Join(err, r.close()) }()
	x := &run{Options: o, ctx: ctx, log: newIncidentLog()}
	x.estate = &estate{
		environment: plainEnvironment(o.Environment),
		root:        root,
		out:         o.Out,
		installer:   &installer{cache: o.Cache, env: o.Environment, out: o.Out},
		group:       &group{logs: filepath.Join(root, "logs"), reaper: r},
	}
	if o.Record != "" {
		if x.estate.group.logs, err = filepath.Abs(filepath.Join(o.Record, "logs")); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(x.estate.group.logs, 0o755); err != nil {
		return nil, err
	}
	defer x.estate.group.close()
	return x.run()
}

// run is the state of a run.
type run struct {
	*Options
	ctx     context.Context //nolint:containedctx // of one call of Run
	estate  *estate
	sibyl   *sibyl
	tee     *tee // nil: no recording
	load    *load
	log     *incidentLog
	cases   []Case
	learned time.Time
	change  period // of the addresses
}

// run executes the phases: install, start, learn, faults or quiet time, judgement.
func (x *run) run() (report *Report, err error) {
	e := x.estate
	skipped, err := e.choose(x.ctx, x.Only)
	if err != nil {
		return nil, err
	}
	if e.programs["postgresql"] != nil {
		if e.postgresUser, err = postgresUser(); err != nil {
			return nil, err
		}
	}
	if err := e.allocate(); err != nil {
		return nil, err
	}
	if err := x.observe(); err != nil {
		return nil, err
	}
	if x.tee != nil {
		defer func() {
			e.group.close() // programs send their last spans
			err = errors.Join(err, x.tee.close())
		}()
	}
	if err := e.boot(x.ctx); err != nil {
		return nil, err
	}
	x.load = newLoad(e, x.Rate)
	if err := x.load.fill(x.ctx); err != nil {
		return nil, fmt.Errorf("fill the programs: %w", err)
	}
	ctx, stop := context.WithCancel(x.ctx)
	loaded := make(chan struct{})
	go func() { // ends with stop
		defer close(loaded)
		x.load.run(ctx, x.Seed)
	}()
	defer func() { stop(); <-loaded }()
	if err := x.phases(); err != nil {
		return nil, err
	}
	return x.report(skipped), nil
}

// observe starts the service and, for a recording, the tee in front of it.
func (x *run) observe() (err error) {
	e := x.estate
	if x.sibyl, err = startSibyl(x.ctx, e.group, x.Sibyl, e.dir("sibyl-data"), e.environment); err != nil {
		return err
	}
	e.otlp = x.sibyl.otlp
	fmt.Fprintf(x.Out, "sibyl: http://%s\n", x.sibyl.api)
	if x.Record == "" {
		return nil
	}
	if x.tee, err = startTee(x.sibyl.otlp, x.Record); err != nil {
		return err
	}
	e.otlp = x.tee.listener.Addr().String()
	return nil
}

// phases runs the learning period and the faults or the quiet time.
func (x *run) phases() error {
	fmt.Fprintf(x.Out, "learning for %s\n", x.Learn)
	before := x.estate.cpuTimes()
	if err := x.pass(x.ctx, x.Learn); err != nil {
		return err
	}
	x.estate.measureCPUs(before, x.Learn)
	x.learned = time.Now()
	if x.Quiet > 0 {
		return errors.Join(x.pass(x.ctx, x.Quiet/2), x.useNames(), x.pass(x.ctx, x.Quiet/2))
	}
	for i, f := range schedule(x.Seed, x.Faults, x.estate.targets()) {
		if i > 0 && i == x.Faults/2 {
			if err := errors.Join(x.useNames(), x.pass(x.ctx, x.Between)); err != nil {
				return err
			}
		}
		if err := x.fault(&f); err != nil {
			return err
		}
	}
	return nil
}

// useNames changes the addresses of the programs to names. What happens meanwhile is not judged.
func (x *run) useNames() error {
	fmt.Fprintln(x.Out, "addressing by name")
	x.change.start = time.Now()
	ctx, stop := context.WithCancel(x.ctx)
	defer stop()
	changed := make(chan error, 1)
	go func() { changed <- x.estate.useNames(ctx) }() // ends with stop
	for {
		select {
		case err := <-changed:
			x.change.end = time.Now()
			return err
		case <-time.After(pollInterval):
			x.poll()
		}
	}
}

// fault injects a fault for a window and lets healthy time pass.
func (x *run) fault(f *Fault) error {
	fmt.Fprintln(x.Out, f)
	start := time.Now()
	x.cases = append(x.cases, Case{
		Name:          f.Name,
		Fault:         f.target.kind,
		Target:        Target{f.target.service, f.target.detail},
		Strength:      fmt.Sprintf("%.3g%s", f.strength, f.target.unit),
		Addresses:     x.estate.addresses(),
		StartUnixNano: start.UnixNano(),
		EndUnixNano:   start.Add(x.Window).UnixNano(),
		accept:        f.target.names(),
	})
	c := &x.cases[len(x.cases)-1]
	ctx, stop := context.WithCancel(x.ctx)
	injected := make(chan error, 1)
	go func() { injected <- f.target.inject(ctx, x.estate, f.strength) }() // ends with stop
	err := x.pass(ctx, x.Window)
	c.Seen = x.seen(f.target.service)
	stop()
	if err := errors.Join(err, <-injected); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	c.EndUnixNano = time.Now().UnixNano() // a killed program is ready again
	if x.Record != "" {
		if err := recordCase(x.Record, c); err != nil {
			return err
		}
	}
	if err := x.pass(x.ctx, x.Between); err != nil {
		return err
	}
	x.effect(c)
	fmt.Fprintf(x.Out, "  %d requests, %d failed, mean %.0f ms, healthy %.0f ms\n",
		c.Requests, c.Failed, c.MeanMS, c.HealthyMeanMS)
	return nil
}

// effect measures the effect of a fault on the requests.
func (x *run) effect(c *Case) {
	window := x.load.between(c.Target.Service, time.Unix(0, c.StartUnixNano), time.Unix(0, c.EndUnixNano))
	c.effect(window, x.healthy(x.load.between(c.Target.Service, time.Time{}, time.Now())))
}

// seen returns the state of the service in sibyl's API, with the reason, or an error as text.
func (x *run) seen(service string) string {
	ctx, cancel := context.WithTimeout(x.ctx, pollInterval)
	defer cancel()
	text, err := x.sibyl.service(ctx, service)
	if err != nil {
		return err.Error()
	}
	return text
}

// healthy returns the requests that began outside of all windows, their grace, and the change of the addresses.
func (x *run) healthy(list []sent) []sent {
	return slices.DeleteFunc(list, func(s sent) bool {
		return x.change.covers(s.start.UnixNano()) ||
			slices.ContainsFunc(x.cases, func(c Case) bool { return c.covers(s.start.UnixNano()) })
	})
}

// pollInterval is the time between two reads of the incidents.
const pollInterval = 5 * time.Second

// pass lets time pass and reads the incidents. It returns an error if the service exits or ctx ends.
func (x *run) pass(ctx context.Context, d time.Duration) error {
	end := time.After(d)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.sibyl.process.exited:
			return x.sibyl.process.exitError()
		case <-end:
			x.poll()
			return nil
		case <-poll.C:
			x.poll()
		}
	}
}

// poll adds the current incidents to the log, and prints new ones. Errors are only printed, because the next poll
// retries.
func (x *run) poll() {
	ctx, cancel := context.WithTimeout(x.ctx, pollInterval)
	defer cancel()
	incidents, err := x.sibyl.incidents(ctx)
	if err != nil {
		fmt.Fprintf(x.Out, "read incidents: %v\n", err)
		return
	}
	for _, i := range incidents {
		if _, known := x.log.last[i.ID]; !known {
			fmt.Fprintf(x.Out, "  incident: %s\n", i.Sentence)
		}
	}
	x.log.add(time.Now().UnixNano(), incidents, x.cases)
}

// report returns the verdict.
func (x *run) report(skipped []Skipped) *Report {
	r := x.log.score(x.cases, x.change, x.learned, time.Now())
	r.Skipped = append(r.Skipped, skipped...)
	x.load.mu.Lock()
	all := slices.Clone(x.load.done)
	x.load.mu.Unlock()
	r.Requests = len(all)
	for _, s := range x.healthy(all) {
		if !s.ok {
			r.FailedHealthy++
		}
	}
	return &r
}

// plainEnvironment returns an environment without the variables that configure Sibyl and OpenTelemetry.
func plainEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return strings.HasPrefix(v, "SIBYL_") || strings.HasPrefix(v, "OTEL_")
	})
}
