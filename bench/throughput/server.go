package throughput

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// server is a sibyl serve process.
type server struct {
	cmd       *exec.Cmd
	grpc, api string              // addresses
	lines     chan map[string]any // log lines; closed at the end of the log
	last      map[string]any      // the last log line; read it only once lines is closed
}

// usage lists the resources that a server used until it exited.
type usage struct {
	cpu  time.Duration
	peak int64          // bytes of resident memory; 0 if unknown
	log  map[string]any // the last log line, which holds counters
}

// number returns a counter of the last log line, or 0 if it is missing.
func (u *usage) number(key string) float64 {
	n, _ := u.log[key].(float64)
	return n
}

// runServer starts a server with an empty data directory, calls use, and stops the server. env is its whole environment
// and must not be nil. It joins the errors of use and of the server.
func runServer(ctx context.Context, program string, env, args []string, use func(*server) error) (*usage, error) {
	dir, remove, err := dataDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	s, err := startServer(ctx, program, dir, env, args)
	if err != nil {
		return nil, err
	}
	useErr := use(s)
	used, err := s.stop()
	if err := errors.Join(useErr, err); err != nil {
		return nil, err
	}
	return used, nil
}

// dataDir creates a temporary directory. remove deletes it.
func dataDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "sibyl-bench-*")
	return dir, func() { _ = os.RemoveAll(dir) }, err // the system cleans temporary directories, too
}

// startServer starts a server that keeps its data in dir, and returns once it is ready. env is its whole environment
// and must not be nil.
func startServer(ctx context.Context, program, dir string, env, args []string) (*server, error) {
	s := &server{lines: make(chan map[string]any, 100)}
	s.cmd = exec.CommandContext(ctx, program, append([]string{
		"serve", "--data-dir", dir, "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "off", "--http", "127.0.0.1:0",
		"--log-format", "json",
	}, args...)...)
	s.cmd.Env = env
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	go s.read(log)
	for line := range s.lines {
		if line["msg"] == "listening" {
			s.grpc, _ = line["otlp_grpc"].(string)
			s.api, _ = line["api"].(string)
		}
		if line["msg"] == "ready" {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the server did not start: %v: %w", s.last, s.cmd.Wait())
}

// read parses the log until it ends.
func (s *server) read(log io.Reader) {
	defer close(s.lines)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		s.last = line
		select {
		case s.lines <- line:
		default: // nobody reads lines once the server is ready
		}
	}
}

// stop terminates the server, waits for it, and returns the resources that it used.
func (s *server) stop() (*usage, error) {
	used := &usage{peak: s.memory(peakMemory)}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	for range s.lines { // until the log ends
	}
	err := s.cmd.Wait()
	used.cpu = s.cmd.ProcessState.SystemTime() + s.cmd.ProcessState.UserTime()
	used.log = s.last
	if err != nil {
		return nil, fmt.Errorf("the server: %w: %v", err, s.last)
	}
	return used, nil
}

// kill kills the server and waits for it.
func (s *server) kill() error {
	err := s.cmd.Process.Kill()
	for range s.lines { // until the log ends
	}
	_ = s.cmd.Wait() // reports the signal
	return err
}

// connect opens n connections for senders to share. closeAll closes them.
func (s *server) connect(n int) (conns []*grpc.ClientConn, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close() // it has no pending calls
		}
	}
	for range n {
		c, err := dial(s.grpc)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return conns, closeAll, nil
}

// Lines of /proc/PID/status.
const (
	peakMemory     = "VmHWM:"
	residentMemory = "VmRSS:"
)

// memory returns the bytes in a line of the server's /proc/PID/status, or 0 if the system lacks that file.
func (s *server) memory(line string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for text := range strings.Lines(string(data)) {
		if kib, ok := strings.CutPrefix(text, line); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64) // 0 if malformed
			return n << 10
		}
	}
	return 0
}

// clockTick is the unit of times in /proc, the same on all architectures that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that the server has used, or 0 if the system does not report it.
func (s *server) cpuTime() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // after the name, which may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64) // 0 if malformed
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}
