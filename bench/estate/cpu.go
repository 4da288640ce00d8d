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

// throttle returns a function that limits a process to a multiple of its usual CPU time. It uses a control group if the
// kernel allows it; otherwise it stops the process most of the time.
func throttle(name string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, times float64) error {
		p, cpus := e.processes[name], times*e.usualCPUs[name]
		release, err := limitCPU("/sys/fs/cgroup", append(descendants(p.pid()), p.pid()), cpus)
		if err == nil {
			<-ctx.Done()
			return release()
		}
		defer p.signal(syscall.SIGCONT)
		on := time.Duration(min(1, cpus) * float64(stopPeriod))
		return repeat(ctx, stopPeriod-on, on,
			func(context.Context) error { p.signal(syscall.SIGSTOP); return nil },
			func(context.Context) error { p.signal(syscall.SIGCONT); return nil })
	}
}

// cpuTimes returns the CPU time that each program has used so far.
func (e *estate) cpuTimes() map[string]time.Duration {
	times := make(map[string]time.Duration)
	for name, p := range e.processes {
		for _, pid := range append(descendants(p.pid()), p.pid()) {
			times[name] += cpuTime(pid)
		}
	}
	return times
}

// measureCPUs sets the usual number of CPUs of each program. before has the CPU times at the start of a duration that
// ends now.
func (e *estate) measureCPUs(before map[string]time.Duration, d time.Duration) {
	e.usualCPUs = make(map[string]float64)
	for name, now := range e.cpuTimes() {
		e.usualCPUs[name] = (now - before[name]).Seconds() / max(1, d.Seconds())
	}
}

// tick is the unit of CPU times in /proc, the same on all architectures.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time of a process, or 0 if it has exited.
func cpuTime(pid int) time.Duration {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // without it the process has exited
	_, rest, _ := cutLast(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11]) // the kernel writes numbers
	kernel, _ := strconv.Atoi(fields[12])
	return time.Duration(user+kernel) * tick
}

// Periods of limits: of the kernel's scheduler, and of stops by signals.
const (
	quotaPeriod   = 100 * time.Millisecond
	longestPeriod = time.Second      // that the kernel accepts
	leastQuota    = time.Millisecond // that the kernel accepts
	stopPeriod    = 400 * time.Millisecond
)

// quotaOf returns the quota that limits processes to a number of CPUs, and its period.
func quotaOf(cpus float64) (quota, period time.Duration) {
	period = max(quotaPeriod, time.Duration(min(float64(longestPeriod), float64(leastQuota)/cpus)))
	return max(leastQuota, time.Duration(cpus*float64(period))), period
}

// limitCPU limits processes to the given number of CPUs, by moving them into a new control group, of either version,
// below root. release moves them back.
func limitCPU(root string, pids []int, cpus float64) (release func() error, err error) {
	on, of := quotaOf(cpus)
	quota, period := strconv.FormatInt(on.Microseconds(), 10), strconv.FormatInt(of.Microseconds(), 10)
	parent := filepath.Join(root, "cpu")
	controls := [][2]string{{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}}
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
