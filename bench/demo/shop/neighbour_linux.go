package shop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// neighbourThreads is the number of threads of the noisy neighbour that never stop computing.
const neighbourThreads = 8

// startNeighbour binds this process to a CPU and starts another process there. Otherwise the scheduler would spread the
// load over all CPUs, and all services of the shop, which are on one host, would suffer.
func (s *service) startNeighbour() error {
	cpu, err := lastCPU()
	if err != nil {
		return err
	}
	if err := bindThreads(cpu); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c := exec.Command(program, NeighbourCommand, strconv.Itoa(cpu)) //nolint:noctx // it exits with its input
	input, err := c.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the neighbour: %w", err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the neighbour: %w", err)
	}
	s.neighbour = func() error {
		_ = input.Close() // fails if it has exited
		return c.Wait()
	}
	return nil
}

// lastCPU returns the last CPU that this process may use.
func lastCPU() (int, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return 0, fmt.Errorf("read the CPUs of this process: %w", err)
	}
	for cpu := len(all)*64 - 1; cpu >= 0; cpu-- {
		if all.IsSet(cpu) {
			return cpu, nil
		}
	}
	return 0, errors.New("this process has no CPU")
}

// neighbourNice is the nice value of the noisy neighbour. It gives each of its threads the weight of three usual ones,
// as in a container with more CPU shares.
const neighbourNice = -5

// bindThreads binds all threads of this process to a CPU. Threads that they start inherit the binding.
func bindThreads(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	return eachThread(func(tid int) error {
		if err := unix.SchedSetaffinity(tid, &one); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return fmt.Errorf("bind a thread to CPU %d: %w", cpu, err)
		}
		return nil
	})
}

// eachThread calls do for each thread of this process.
func eachThread(do func(tid int) error) error {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		return errors.New("the threads of this process are unknown: /proc is not mounted")
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			return fmt.Errorf("thread %q: %w", t, err)
		}
		if err := do(tid); err != nil {
			return err
		}
	}
	return nil
}

// Disturb computes on one CPU until ctx ends, and returns when in ends. It is the noisy neighbour of a service.
func Disturb(ctx context.Context, in io.Reader, cpu string) error {
	number, err := strconv.Atoi(cpu)
	if err != nil {
		return errors.New("this command is internal to sibylbench demo")
	}
	if err := bindThreads(number); err != nil {
		return err
	}
	// The service still gets only a ninth of the CPU if this process may not raise its weight.
	_ = eachThread(func(tid int) error { return unix.Setpriority(unix.PRIO_PROCESS, tid, neighbourNice) })
	runtime.GOMAXPROCS(neighbourThreads + 1) // one more thread to notice the end of the input
	for range neighbourThreads {
		go func() { // ends with the process
			for ctx.Err() == nil {
				burn(1000)
			}
		}()
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
