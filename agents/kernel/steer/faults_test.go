//go:build linux && (amd64 || arm64)

package steer

import (
	"bufio"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// faultCase is a service whose requests wait for something, and the reason that Sibyl must give when this takes
// longer.
type faultCase struct {
	service string
	reason  string // in the sentence
	// open returns the work of a request in one thread of the service. The work takes longer while faulty is true.
	open func(faulty *atomic.Bool) (work func() error, err error)
	// yields means that the threads give way to the process that takes their CPU.
	yields bool
}

// Real-time priorities: the services and the process that takes a CPU come before everything else on the machine, so
// that other work on it doesn't cause waits.
const (
	yieldingPriority = 1 + iota
	takingPriority
	servicePriority
)

// prioritize gives thread tid a real-time priority, which threads that it starts inherit. tid 0 is this thread. Without
// the right to do so, the test depends on the machine.
func prioritize(tid int, priority uint32) {
	_ = unix.SchedSetAttr(tid,
		&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0)
}

// prioritizeProcess gives all threads of this process a real-time priority.
func prioritizeProcess(priority uint32) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			prioritize(tid, priority)
		}
	}
}

// faultCases holds the classes of waits that most often slow real applications down.
var faultCases = []faultCase{
	{service: "client", reason: "waiting for the network", open: askPeer},
	{service: "ledger", reason: "waiting for the disk (fsync)", open: syncRecord},
	{service: "archive", reason: "waiting for the disk (reading or writing files)", open: readDisk},
	{service: "stock", reason: "waiting for a lock", open: takeLock},
	{service: "mailer", reason: "waiting for DNS answers", open: lookUp},
	{service: "retrier", reason: "sleeping (a pause in its own code)", open: pauseItself},
	{service: "ranker", reason: "waiting for a CPU", open: compute, yields: true},
}

// longer returns the duration of a request while its service has a fault. It varies, so that it doesn't look normal.
func longer() time.Duration { return time.Duration(8+rand.IntN(8)) * time.Millisecond }

// askPeer asks a peer over TCP that answers each byte after a millisecond, or much later if faulty.
func askPeer(faulty *atomic.Bool) (func() error, error) {
	peer, err := connect(faulty)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 1)
	return func() error {
		_, err := unix.Write(int(peer.Fd()), b)
		_, err2 := unix.Read(int(peer.Fd()), b)
		return errors.Join(err, err2)
	}, nil
}

const diskFileSize = 8 << 20

// diskFile returns a file on a disk, with contents. It is removed at once.
func diskFile(flags int) (*os.File, error) {
	dir, err := os.MkdirTemp("", "steer-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, make([]byte, diskFileSize), 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|flags, 0o600)
}

// while repeats do for d if it is above 0, otherwise it calls do once.
func while(d time.Duration, do func() error) error {
	for began := time.Now(); ; {
		if err := do(); err != nil || time.Since(began) >= d {
			return err
		}
	}
}

func faultTime(faulty *atomic.Bool) time.Duration {
	if faulty.Load() {
		return longer()
	}
	return 0
}

// syncRecord writes and syncs a record, or many records if faulty.
func syncRecord(faulty *atomic.Bool) (func() error, error) {
	f, err := diskFile(0)
	if err != nil {
		return nil, err
	}
	record := make([]byte, 4096)
	return func() error {
		return while(faultTime(faulty), func() error {
			_, err := f.WriteAt(record, 0)
			return errors.Join(err, f.Sync())
		})
	}, nil
}

// readDisk reads repeatedly from a file in the cache, or from the disk if faulty. The reads are large: on a fast disk
// of a virtual machine, issuing a small read takes as long as waiting for it.
func readDisk(faulty *atomic.Bool) (func() error, error) {
	warm, err := diskFile(0)
	if err != nil {
		return nil, err
	}
	cold, err := diskFile(unix.O_DIRECT)
	if err != nil {
		return nil, err
	}
	const size = 1 << 20
	b := make([]byte, size+4096)
	b = b[-uintptr(unsafe.Pointer(&b[0]))%4096:][:size]
	return func() error {
		if !faulty.Load() {
			_, err := warm.ReadAt(b[:64<<10], 0)
			return err
		}
		return while(longer(),
			func() error { _, err := cold.ReadAt(b, rand.Int64N(diskFileSize/size)*size); return err })
	}, nil
}

// takeLock takes the lock of a file. If faulty, a job holds the lock for most of the time.
func takeLock(faulty *atomic.Bool) (func() error, error) {
	f, err := os.CreateTemp("", "steer-*.lock")
	if err != nil {
		return nil, err
	}
	job, err := os.Open(f.Name())
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	flock := func(f *os.File, how int) error {
		for {
			if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
	go func() {
		for {
			if faulty.Load() && flock(job, unix.LOCK_EX) == nil {
				time.Sleep(2 * longer())
				_ = flock(job, unix.LOCK_UN)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return func() error { return errors.Join(flock(f, unix.LOCK_EX), flock(f, unix.LOCK_UN)) }, nil
}

// lookUp asks a name server like the C library does: its socket is connected, and the thread waits in poll.
func lookUp(faulty *atomic.Bool) (func() error, error) {
	var server net.PacketConn
	var err error
	for i := byte(1); i < 32; i++ {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 54, i}), 53)
		if server, err = net.ListenPacket("udp4", address.String()); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				panic(err)
			}
			time.Sleep(faultTime(faulty))
			_, _ = server.WriteTo(b[:n], from)
		}
	}()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	at := server.LocalAddr().(*net.UDPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}); err != nil {
		return nil, err
	}
	b := make([]byte, 32)
	return func() error {
		if _, err := unix.Write(fd, b); err != nil {
			return err
		}
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_, err := unix.Read(fd, b)
		return err
	}, nil
}

// pauseItself sleeps, like a retry.
func pauseItself(faulty *atomic.Bool) (func() error, error) {
	return func() error {
		if faulty.Load() {
			nap(longer())
		}
		return nil
	}, nil
}

// compute computes for some milliseconds on one CPU, which it shares with another process if faulty.
func compute(faulty *atomic.Bool) (func() error, error) {
	if err := bindToLastCPU(); err != nil {
		return nil, err
	}
	return func() error {
		spin(3 * time.Millisecond)
		return nil
	}, nil
}

// bindToLastCPU binds this thread to the last CPU that it may use.
func bindToLastCPU() error {
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range 64 * len(all) {
		if all.IsSet(cpu) {
			last.Zero()
			last.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(0, &last)
}

// spin uses the CPU time d, as counted by the kernel.
func spin(d time.Duration) {
	used := func() time.Duration {
		var t unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
		return time.Duration(t.Nano())
	}
	for end := used() + d; used() < end; {
	}
}

// neighbour takes the last CPU from others for most of the time. It starts at the first line of its input, and ends
// with its input.
func neighbour() {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	go func() { // ends with the process
		runtime.LockOSThread()
		prioritize(0, takingPriority)
		if bindToLastCPU() == nil {
			for {
				spin(12 * time.Millisecond)
				nap(3 * time.Millisecond)
			}
		}
	}()
	_, _ = in.ReadString('\n')
}

// service handles requests in two threads, and writes a line for each. A line of its input starts the fault. It ends
// with its input.
func service(number string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	prioritizeProcess(servicePriority)
	c := &faultCases[n]
	var faulty atomic.Bool
	lines := make(chan handled, 1000)
	for range 2 {
		go c.serve(&faulty, lines)
	}
	go writeLines(lines)
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		faulty.Store(true)
	}
}

func nap(d time.Duration) { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(d)}, nil) }
