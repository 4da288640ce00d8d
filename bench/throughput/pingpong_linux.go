package throughput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
)

// pingPong is a process that echoes bytes.
type pingPong struct {
	echo *exec.Cmd
	to   *os.File
	from *os.File
	pid  uint32
}

func newPingPong() (*pingPong, error) {
	c := exec.Command("cat")
	in, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	c.Stdin, c.Stdout = in, out
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	p := &pingPong{echo: c, to: to, from: from, pid: uint32(c.Process.Pid)}
	if err := errors.Join(in.Close(), out.Close(), pin(c.Process.Pid)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// pin pins a thread to the first CPU. If both threads are there, each of their waits switches the CPU to the other one.
func pin(tid int) error {
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(tid, &first); err != nil {
		return fmt.Errorf("choose a CPU: %w", err)
	}
	return nil
}

// play sends bytes for duration and returns the mean CPU time of a round trip in ns, of both sides together. Unlike the
// elapsed time, it does not depend on other programs that want the CPU.
func (p *pingPong) play(duration time.Duration) (float64, error) {
	type result struct {
		ns  float64
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, since it is pinned
		var r result
		if r.err = pin(0); r.err == nil {
			// The agent library agents/tracepoint sets them so.
			keys, values := "trace_idspan_id", "0af7651916cd43dd8448eb211c80319cb7ad6b7169203331"
			labels := pprof.Labels(keys[:8], values[:32], keys[8:], values[32:])
			pprof.Do(context.Background(), labels, func(context.Context) { //nolint:forbidigo // it only holds labels
				r.ns, r.err = p.playHere(duration)
			})
		}
		done <- r
	}()
	r := <-done
	return r.ns, r.err
}

func (p *pingPong) playHere(duration time.Duration) (float64, error) {
	const batch = 100
	to, from, b := int(p.to.Fd()), int(p.from.Fd()), make([]byte, 1)
	before, err := p.cpuTime()
	if err != nil {
		return 0, err
	}
	trips := 0
	for begin := time.Now(); time.Since(begin) < duration; trips += batch {
		for range batch {
			if _, err := unix.Write(to, b); err != nil {
				return 0, fmt.Errorf("write to a pipe: %w", err)
			}
			if n, err := unix.Read(from, b); n != 1 {
				return 0, fmt.Errorf("read from a pipe: %w", errors.Join(err, io.ErrUnexpectedEOF))
			}
		}
	}
	after, err := p.cpuTime()
	return float64(after-before) / float64(trips), err
}

// cpuTime returns the CPU time of this thread and of the other process in ns.
func (p *pingPong) cpuTime() (int64, error) {
	const schedulerClock = 2 // of a process, see clock_getcpuclockid
	var own, other unix.Timespec
	err := errors.Join(
		unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &own),
		unix.ClockGettime(^int32(p.pid)<<3|schedulerClock, &other),
	)
	if err != nil {
		return 0, fmt.Errorf("read the clocks of processes: %w", err)
	}
	return own.Nano() + other.Nano(), nil
}

func (p *pingPong) close() error {
	return errors.Join(p.to.Close(), p.echo.Wait(), p.from.Close())
}
