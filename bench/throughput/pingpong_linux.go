package throughput

import (
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

// play sends bytes for a time and returns the mean time of a round trip in ns.
func (p *pingPong) play(duration time.Duration) (float64, error) {
	const batch = 100
	result := make(chan float64, 1)
	go func() {
		pin() // the thread ends with the goroutine
		b := new([1]byte)
		defer runtime.KeepAlive(b)
		begin, trips := time.Now(), 0
		for time.Since(begin) < duration {
			for range batch {
				_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(p.there[1]), bytePointer(b), 1)
				_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(p.back[0]), bytePointer(b), 1)
			}
			trips += batch
		}
		result <- perRound(time.Since(begin), trips)
	}()
	return <-result, nil
}

func (p *pingPong) close() {
	for _, fd := range []int{p.there[1], p.back[0]} {
		_ = unix.Close(fd) // echo ends, and nobody reads the rest
	}
}

func bytePointer(b *[1]byte) uintptr { return uintptr(unsafe.Pointer(b)) }
