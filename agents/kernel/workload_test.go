//go:build linux

package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// workloadVariable makes the test binary run a workload in place of tests.
const workloadVariable = "SIBYL_KERNEL_WORKLOAD"

// workloads write a line to standard output when they are ready, continue at a line on standard input, write their
// result, and end with their input.
var workloads = map[string]func(in *bufio.Reader, out io.Writer) error{
	"truth": truthWorkload, "storm": stormWorkload, "threads": threadsWorkload, "forks": forksWorkload,
	"requests": requestsWorkload, "naps": napsWorkload,
	"crowded": crowdedWorkload,
	"turns":   turnsWorkload,
	"exec":    execWorkload, "executed": executedWorkload,
}

func TestMain(m *testing.M) {
	if run, ok := workloads[os.Getenv(workloadVariable)]; ok {
		if err := run(bufio.NewReader(os.Stdin), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// workload is a running workload.
type workload struct {
	t     *testing.T
	pid   uint32
	in    io.WriteCloser
	out   *bufio.Reader
	first []byte // its first line
	stop  func()
}

// start starts the named workload and waits until it is ready.
func start(t *testing.T, name string, arguments ...string) *workload {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // kills a workload that hangs
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0], arguments...)
	c.Env = append(os.Environ(), workloadVariable+"="+name)
	if name != "requests" {
		// Threads of the workload block without informing the runtime, so the runtime must not need to stop them for
		// signals or garbage collection.
		c.Env = append(c.Env, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=64")
	}
	c.Stderr = os.Stderr
	in, out := startPiped(t, c)
	w := &workload{t: t, pid: uint32(c.Process.Pid), in: in, out: bufio.NewReader(out)}
	w.stop = sync.OnceFunc(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the workload failed: %v", err)
		}
	})
	t.Cleanup(w.stop)
	w.first = w.line()
	return w
}

// goOn lets the workload continue.
func (w *workload) goOn() {
	w.t.Helper()
	if _, err := io.WriteString(w.in, "go\n"); err != nil {
		w.t.Fatal(err)
	}
}

// line returns the next line of the workload.
func (w *workload) line() []byte {
	w.t.Helper()
	text, err := w.out.ReadBytes('\n')
	if err != nil {
		w.t.Fatalf("read from the workload: %v", err)
	}
	return text
}

// timed is a thread that measures its own waits.
type timed struct {
	Name     string
	Class    waits.Class
	TID      int
	Syscall  int32 // of the waits; -1 for waits outside system calls
	WaitedNs int64
	Rounds   int
	Kind     kind
	Missing  string // why it couldn't run
}

// waiter is a wait that a thread repeats.
type waiter struct {
	name    string
	class   waits.Class
	rounds  int
	kind    kind
	prepare func() (step, error)
}

// step prepares a round and returns the system call to measure, or one of the numbers below.
type step func(round int) (nr uintptr, arguments [6]uintptr)

const (
	touch = 1000 + iota // writes to the address that is the argument
	spin                // uses the CPU for the nanoseconds that are the argument
)

// measure makes a system call without informing Go's scheduler, and returns its duration. Neither it nor its callees
// check whether the scheduler wants the thread.
//
//go:nosplit
//go:norace
func measure(nr uintptr, a *[6]uintptr) int64 {
	from := clock()
	switch nr {
	case touch:
		**(**byte)(unsafe.Pointer(&a[0])) = 1
	case spin:
		for clock()-from < int64(a[0]) {
			continue
		}
	default:
		_, _, _ = unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	}
	return clock() - from
}

//go:nosplit
//go:norace
func clock() int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e9 + t.Nsec
}

// kind says which times a wait consists of.
type kind int

const (
	pure  kind = iota // waiting for the thing and then for a CPU, once per round
	woken             // the same, but a round may not need to wait
	busy              // also on a CPU, with waits for it before and after
)

const pause = 20 * time.Millisecond

// cleanups run at the end of the truth workload.
var cleanups []func()

// started is set when the threads of the truth workload start to wait.
var started atomic.Bool

// truthWorkload runs a thread for each waiter.
func truthWorkload(in *bufio.Reader, out io.Writer) error {
	debug.SetGCPercent(-1) // garbage collection would stop threads
	all := waiters()
	results := make([]timed, len(all))
	var ready, done sync.WaitGroup
	for i := range all {
		ready.Add(1)
		done.Add(1)
		go func() {
			runtime.LockOSThread() // never unlocked, so that the thread stays
			w, r := &all[i], &results[i]
			*r = timed{Name: w.name, Class: w.class, TID: unix.Gettid(), Rounds: w.rounds, Kind: w.kind}
			next, err := w.prepare()
			if err != nil {
				r.Missing = err.Error()
			}
			ready.Done()
			for !started.Load() {
				idle(w.class)
			}
			for round := range w.rounds {
				if err == nil {
					nr, arguments := next(round)
					r.Syscall = waits.NoSyscall
					if nr < touch {
						r.Syscall = int32(nr)
					}
					r.WaitedNs += measure(nr, &arguments)
				}
			}
			done.Done()
			for {
				idle(w.class)
			}
		}()
	}
	ready.Wait()
	if err := json.NewEncoder(out).Encode(results); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	started.Store(true)
	done.Wait()
	if err := json.NewEncoder(out).Encode(results); err != nil {
		return err
	}
	_, _ = in.ReadString('\n')
	for _, clean := range cleanups {
		clean()
	}
	return nil
}

// idle waits for a moment, but not in class.
func idle(class waits.Class) {
	moment := unix.Timespec{Nsec: 5e6}
	if class == waits.Sleep {
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&moment)), 0, 0, 0)
		return
	}
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&moment)), 0, 0)
}

// repeated returns a step that always makes the same call.
func repeated(nr uintptr, arguments ...uintptr) step {
	var a [6]uintptr
	copy(a[:], arguments)
	return func(int) (uintptr, [6]uintptr) { return nr, a }
}

// after returns a step that calls do first.
func after(do func(), next step) step {
	return func(round int) (uintptr, [6]uintptr) {
		do()
		return next(round)
	}
}

// kept holds the arguments of calls, because numbers don't prevent memory from being reused.
var kept struct {
	sync.Mutex
	all []any
}

// keep returns the address of x, which will not move.
func keep[T any](x *T) uintptr {
	kept.Lock()
	defer kept.Unlock()
	kept.all = append(kept.all, x)
	return uintptr(unsafe.Pointer(x))
}

// soon returns the address of the timeout of a wait. System calls that update it get a new one in each round.
func soon() uintptr { return keep(&unix.Timespec{Nsec: int64(pause)}) }

// waiters returns the waits of the truth workload.
func waiters() []waiter {
	const rounds = 15
	return []waiter{
		{"recv of TCP", waits.Net, rounds, pure, receive(unix.AF_INET, unix.SOCK_STREAM, 0)},
		{"accept", waits.Net, rounds, pure, accept},
		{"recv of UDP", waits.Net, rounds, pure, receive(unix.AF_INET, unix.SOCK_DGRAM, 54)},
		{"recv of DNS", waits.DNS, rounds, pure, receive(unix.AF_INET, unix.SOCK_DGRAM, 53)},
		{"poll of DNS", waits.DNS, rounds, pure, func() (step, error) { return poll(53) }},
		{"poll", waits.Poll, rounds, pure, func() (step, error) { return poll(54) }},
		{"select", waits.Poll, rounds, pure, func() (step, error) {
			return func(int) (uintptr, [6]uintptr) { return unix.SYS_PSELECT6, [6]uintptr{4: soon()} }, nil
		}},
		{"recv of a Unix socket", waits.Unix, rounds, pure, receive(unix.AF_UNIX, unix.SOCK_STREAM, 0)},
		{"read of a pipe", waits.Pipe, rounds, woken, func() (step, error) {
			var fds [2]int
			if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
				return nil, err
			}
			return wokenRead(fds[0], fds[1], 1), nil
		}},
		{"read of an eventfd", waits.Pipe, rounds, woken, func() (step, error) {
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			return wokenRead(fd, fd, 8), err
		}},
		{"epoll", waits.Epoll, rounds, pure, func() (step, error) {
			fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
			return repeated(unix.SYS_EPOLL_PWAIT, uintptr(fd), keep(new(unix.EpollEvent)), 1,
				uintptr(pause.Milliseconds())), err
		}},
		// We don't use the futex system call, because Go's runtime waits in it.
		{"futex", waits.Futex, rounds, pure, func() (step, error) {
			waiter := keep(&[3]uint64{1: uint64(keep(new(uint32))), 2: 2}) // value 0; address; size of 32 bits
			return func(int) (uintptr, [6]uintptr) {
				end := keep(new(unix.NsecToTimespec(clock() + int64(pause))))
				return unix.SYS_FUTEX_WAITV, [6]uintptr{waiter, 1, 0, end, unix.CLOCK_MONOTONIC}
			}, nil
		}},
		{"nanosleep", waits.Sleep, rounds, pure, func() (step, error) {
			return repeated(unix.SYS_NANOSLEEP, soon()), nil
		}},
		{"read of a timer", waits.Sleep, rounds, pure, timer},
		{"io_uring", waits.IOUring, rounds, pure, ring},
		{"wait4", waits.Child, rounds, woken, children},
		{"read of a terminal", waits.TTY, 3, pure, terminal},
		{"flock", waits.Futex, rounds, woken, lock},
		{"direct reads", waits.File, 400, busy, directReads},
		{"fsync", waits.Sync, 30, busy, syncs},
		{"page faults", waits.Fault, rounds, woken, faults},
		{"semtimedop", waits.Futex, rounds, pure, semaphore},
		{"spinning 1", waits.OnCPU, 1, busy, contend},
		{"spinning 2", waits.OnCPU, 1, busy, contend},
	}
}

// receive returns a function that prepares a wait for a message that never arrives.
func receive(family, kind, port int) func() (step, error) {
	return func() (step, error) {
		fd, err := silent(family, kind, port)
		if err != nil {
			return nil, err
		}
		timeout := unix.NsecToTimeval(int64(pause))
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
		return repeated(unix.SYS_RECVFROM, uintptr(fd), keep(new([8]byte)), 8), err
	}
}

// silent returns a socket that receives nothing.
func silent(family, kind, port int) (int, error) {
	switch {
	case family == unix.AF_UNIX:
		fds, err := unix.Socketpair(family, kind|unix.SOCK_CLOEXEC, 0)
		return fds[0], err
	case kind == unix.SOCK_STREAM:
		return connected()
	}
	return udp(port)
}

// connected returns a socket that is connected to another one of this process.
func connected() (int, error) {
	listener, address, err := listen()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, address); err != nil {
		return 0, err
	}
	_, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	return fd, err
}

func listen() (int, unix.Sockaddr, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, err
	}
	if err := unix.Listen(fd, 4); err != nil {
		return 0, nil, err
	}
	address, err := unix.Getsockname(fd)
	return fd, address, err
}

// udp returns a socket connected to port of this machine. Nobody needs to listen, because nothing is sent.
func udp(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port})
}

func accept() (step, error) {
	fd, _, err := listen()
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(int64(pause))
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	return repeated(unix.SYS_ACCEPT4, uintptr(fd)), err
}

func poll(port int) (step, error) {
	fd, err := udp(port)
	polled := keep(&unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return func(int) (uintptr, [6]uintptr) { return unix.SYS_PPOLL, [6]uintptr{polled, 1, soon()} }, err
}

// wokenRead returns a read that another thread ends after a pause.
func wokenRead(from, to, size int) step {
	go func() {
		for {
			time.Sleep(pause)
			if started.Load() {
				_, _ = unix.Write(to, []byte{1, 0, 0, 0, 0, 0, 0, 0}[:size])
			}
		}
	}()
	return repeated(unix.SYS_READ, uintptr(from), keep(new([8]byte)), uintptr(size))
}

func timer() (step, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	expiry := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(pause))}
	set := func() { _ = unix.TimerfdSettime(fd, 0, &expiry, nil) }
	return after(set, repeated(unix.SYS_READ, uintptr(fd), keep(new([8]byte)), 8)), nil
}

// ring returns a wait for a completion that never arrives.
func ring() (step, error) {
	parameters := keep(new([120]byte)) // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, parameters, 0)
	if errno != 0 {
		return nil, errno
	}
	const getEvents, extended = 1, 8
	argument := keep(&[3]uint64{1: 8, 2: uint64(soon())}) // signal mask, its size, timeout
	return repeated(unix.SYS_IO_URING_ENTER, fd, 0, 1, getEvents|extended, argument, 24), nil
}

// children returns a wait for a process that another thread ends after a pause.
func children() (step, error) {
	type child struct {
		pid int
		in  io.Closer
	}
	var all []child
	for range 15 {
		c := exec.Command("cat")
		in, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		all = append(all, child{c.Process.Pid, in})
	}
	go func() {
		for i := 0; i < len(all); {
			time.Sleep(pause)
			if started.Load() {
				_ = all[i].in.Close()
				i++
			}
		}
	}()
	return func(round int) (uintptr, [6]uintptr) { return unix.SYS_WAIT4, [6]uintptr{uintptr(all[round].pid)} }, nil
}

// terminal returns a read of a pseudo terminal that ends after a tenth of a second.
func terminal() (step, error) {
	pty, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(pty, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(pty, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	tty, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(tty, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	settings.Lflag &^= unix.ICANON
	settings.Cc[unix.VMIN], settings.Cc[unix.VTIME] = 0, 1
	err = unix.IoctlSetTermios(tty, unix.TCSETS, settings)
	return repeated(unix.SYS_READ, uintptr(tty), keep(new([8]byte)), 8), err
}

// lock returns a wait for a lock that another thread mostly holds.
func lock() (step, error) {
	f, err := os.CreateTemp("", "sibyl-lock")
	if err != nil {
		return nil, err
	}
	other, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	go func() {
		for {
			_ = unix.Flock(int(other.Fd()), unix.LOCK_EX)
			time.Sleep(pause)
			_ = unix.Flock(int(other.Fd()), unix.LOCK_UN)
			time.Sleep(time.Millisecond)
		}
	}()
	fd := f.Fd()
	release := func() {
		_ = unix.Flock(int(fd), unix.LOCK_UN)
		time.Sleep(3 * time.Millisecond)
	}
	return after(release, repeated(unix.SYS_FLOCK, fd, unix.LOCK_EX)), nil
}

// directReads returns a read from the disk.
func directReads() (step, error) {
	const size = 64 << 10
	f, err := os.CreateTemp("", "sibyl-direct")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(make([]byte, 64*size)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	fd, err := unix.Open(f.Name(), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	buffer, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	to := uintptr(unsafe.Pointer(&buffer[0]))
	return func(round int) (uintptr, [6]uintptr) {
		return unix.SYS_PREAD64, [6]uintptr{uintptr(fd), to, size, uintptr(round % 64 * size)}
	}, nil
}

func syncs() (step, error) {
	f, err := os.CreateTemp("", "sibyl-sync")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	buffer := make([]byte, 64<<10)
	write := func() { _, _ = f.WriteAt(buffer, 0) }
	return after(write, repeated(unix.SYS_FDATASYNC, f.Fd())), nil
}

// faults returns accesses to pages that another thread provides after a pause.
func faults() (step, error) {
	const (
		api, register, zeroPage = 0xc018aa3f, 0xc020aa00, 0xc020aa04
		missing                 = 1
	)
	page := os.Getpagesize()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	memory, err := unix.Mmap(-1, 0, 16*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, api, keep(&[3]uint64{0xaa})); errno != 0 {
		return nil, errno
	}
	where := keep(&[4]uint64{uint64(uintptr(unsafe.Pointer(&memory[0]))), uint64(len(memory)), missing})
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, register, where); errno != 0 {
		return nil, errno
	}
	go func() {
		for {
			var message [32]byte
			if _, err := unix.Read(int(fd), message[:]); err != nil {
				return
			}
			address := *(*uint64)(unsafe.Pointer(&message[16]))
			time.Sleep(pause)
			zero := keep(&[4]uint64{address &^ uint64(page-1), uint64(page)})
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, zeroPage, zero)
		}
	}()
	return func(round int) (uintptr, [6]uintptr) {
		return touch, [6]uintptr{uintptr(unsafe.Pointer(&memory[round*page]))}
	}, nil
}

func semaphore() (step, error) {
	id, _, errno := unix.Syscall(unix.SYS_SEMGET, 0, 1, 0o600)
	if errno != 0 {
		return nil, errno
	}
	kept.Lock()
	cleanups = append(cleanups, func() { _, _, _ = unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) })
	kept.Unlock()
	operation := keep(&[3]int16{1: -1}) // number, operation, flags
	return repeated(unix.SYS_SEMTIMEDOP, id, operation, 1, soon()), nil
}

// contend uses a CPU that another thread wants, too.
func contend() (step, error) {
	if err := bindToFirstCPU(); err != nil {
		return nil, err
	}
	return repeated(spin, uintptr(15*pause)), nil
}

// bindToFirstCPU binds this thread to the first CPU that it may use.
func bindToFirstCPU() error {
	var allowed, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	for cpu := range 1024 {
		if allowed.IsSet(cpu) {
			first.Set(cpu)
			break
		}
	}
	return unix.SchedSetaffinity(0, &first)
}

// startPiped starts a program, and returns pipes to its input and from its output.
func startPiped(t testing.TB, c *exec.Cmd) (io.WriteCloser, io.ReadCloser) {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// execWorkload computes on a thread that isn't the first one, which then becomes the workload executed.
func execWorkload(in *bufio.Reader, out io.Writer) error {
	failed := make(chan error)
	first := unix.Getpid()
	goOn := make(chan struct{})
	var begin func()
	begin = func() {
		runtime.LockOSThread()
		if unix.Gettid() == first {
			go begin() // this goroutine keeps the first thread
			select {}
		}
		<-goOn
		compute(200 * time.Millisecond)
		_ = os.Setenv(workloadVariable, "executed")
		failed <- unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	go begin()
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	close(goOn)
	return <-failed
}

// executedWorkload computes, and writes its process's time on CPUs in ns.
func executedWorkload(in *bufio.Reader, out io.Writer) error {
	runtime.LockOSThread()
	compute(200 * time.Millisecond)
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		return err
	}
	fmt.Fprintln(out, used.Nano())
	_, _ = in.ReadString('\n')
	return nil
}

// compute uses the CPU time d, as counted by the kernel.
func compute(d time.Duration) {
	var from, now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from)
	for now = from; time.Duration(now.Nano()-from.Nano()) < d; {
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	}
}
