package throughput

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pingPong is a pair of pipes. One thread echoes the bytes that the other one sends.
type pingPong struct {
	there, back [2]int
}

func newPingPong() (*pingPong, error) {
	p := &pingPong{}
	for _, fds := range []*[2]int{&p.there, &p.back} {
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
	}
	go p.echo()
	return p, nil
}

// echo ends when the other thread closes its pipe.
func (p *pingPong) echo() {
	pin()
	b := new([1]byte)
	defer runtime.KeepAlive(b)
	for {
		n, _, _ := unix.RawSyscall(unix.SYS_READ, uintptr(p.there[0]), bytePointer(b), 1)
		if n != 1 {
			return
		}
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(p.back[1]), bytePointer(b), 1)
	}
}

// pin keeps the goroutine on a thread of its own, on the first CPU: both threads there, so that each of their waits
// switches the CPU to the other one.
func pin() {
	runtime.LockOSThread()
	var first unix.CPUSet
	first.Set(0)
	_ = unix.SchedSetaffinity(0, &first) // elsewhere the result varies more
}

// play sends bytes for a time and returns the mean CPU time of a round trip in ns, of both threads. Unlike the elapsed
// time it does not depend on other programs that want the CPU.
func (p *pingPong) play(duration time.Duration) (float64, error) {
	const batch = 100
	result, failed := make(chan float64, 1), make(chan error, 1)
	go func() {
		pin() // the thread ends with the goroutine
		b := new([1]byte)
		defer runtime.KeepAlive(b)
		from, err := cpuTime()
		trips := 0
		for begin := time.Now(); time.Since(begin) < duration; trips += batch {
			for range batch {
				_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(p.there[1]), bytePointer(b), 1)
				_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(p.back[0]), bytePointer(b), 1)
			}
		}
		to, err2 := cpuTime()
		failed <- errors.Join(err, err2)
		result <- float64(to-from) / float64(trips)
	}()
	if err := <-failed; err != nil {
		return 0, err
	}
	return <-result, nil
}

// cpuTime returns the CPU time of this process in ns.
func cpuTime() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("read the clock of the process: %w", err)
	}
	return t.Nano(), nil
}

func (p *pingPong) close() {
	for _, fd := range []int{p.there[1], p.back[0]} {
		_ = unix.Close(fd) // echo ends, and nobody reads the rest
	}
}

func bytePointer(b *[1]byte) uintptr { return uintptr(unsafe.Pointer(b)) }
