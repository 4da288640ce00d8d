package estate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// throttle returns a function that limits a process to a number of CPUs: by a control group if the kernel allows it,
// else by stopping the process most of the time.
func throttle(name string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, cpus float64) error {
		p := e.processes[name]
		release, err := limitCPU("/sys/fs/cgroup", append(descendants(p.pid()), p.pid()), cpus)
		if err == nil {
			<-ctx.Done()
			return release()
		}
		defer p.signal(syscall.SIGCONT)
		on := time.Duration(cpus * float64(stopPeriod))
		return repeat(ctx, stopPeriod-on, on,
			func(context.Context) error { p.signal(syscall.SIGSTOP); return nil },
			func(context.Context) error { p.signal(syscall.SIGCONT); return nil })
	}
}

// Periods of limits: that of the kernel's scheduler, and that of stops by signals.
const (
	quotaPeriod = 100 * time.Millisecond
	stopPeriod  = 400 * time.Millisecond
)

// limitCPU moves processes into a new control group, of either version, below root. release moves them back.
func limitCPU(root string, pids []int, cpus float64) (release func() error, err error) {
	quota := strconv.Itoa(max(1000, int(cpus*float64(quotaPeriod.Microseconds()))))
	period := strconv.FormatInt(quotaPeriod.Microseconds(), 10)
	parent, controls := filepath.Join(root, "cpu"), [][2]string{{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		parent, controls = root, [][2]string{{"cpu.max", quota + " " + period}}
	}
	dir := filepath.Join(parent, fmt.Sprintf("sibylbench-%d-%d", os.Getpid(), pids[len(pids)-1]))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	for _, c := range controls {
		if err := os.WriteFile(filepath.Join(dir, c[0]), []byte(c[1]), 0o644); err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
	}
	release = func() error { return errors.Join(moveBack(parent, dir), os.Remove(dir)) }
	for _, pid := range pids {
		if err := enter(dir, pid); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

// enter moves a process into a control group, unless it has exited.
func enter(dir string, pid int) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// moveBack moves all processes of a control group to its parent.
func moveBack(parent, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(data)) {
		n, err1 := strconv.Atoi(pid)
		err = errors.Join(err, err1)
		if err1 == nil {
			err = errors.Join(err, enter(parent, n))
		}
	}
	return err
}
