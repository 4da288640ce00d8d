package throughput

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"

	"golang.org/x/sys/unix"
)

// service is a Go service in a separate process.
type service struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	url     string
	body    []byte
	pid     uint32
	client  *http.Client
}

// startService starts the service with command or, if that is nil, with a hidden command of this program.
func startService(ctx context.Context, command []string) (*service, error) {
	if command == nil {
		var err error
		if command, err = executable(); err != nil {
			return nil, err
		}
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start a service: %w", err)
	}
	s := &service{
		command: c,
		in:      in,
		out:     bufio.NewReader(out),
		pid:     uint32(c.Process.Pid),
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: httpClients}},
	}
	address, err := s.out.ReadString('\n')
	if err == nil {
		s.url = "http://" + strings.TrimSpace(address)
		s.body, err = json.Marshal(items())
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// cpuTime returns the CPU time of the service in ns.
func (s *service) cpuTime() (ns int64, err error) {
	if _, err := io.WriteString(s.in, "time\n"); err != nil {
		return 0, err
	}
	line, err := s.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &ns)
	}
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of the service: %w", err)
	}
	return ns, nil
}

func (s *service) close() error {
	s.client.CloseIdleConnections()
	return errors.Join(s.in.Close(), s.command.Wait())
}

// Serve serves requests until its input ends. It writes its address, and its CPU time for each line of input.
func Serve(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(answer))
	}() //nolint:gosec // until the process ends; only this benchmark calls it
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, u.Utime.Nano()+u.Stime.Nano()); err != nil {
			return err
		}
	}
	return nil
}

// answer answers a request. Its goroutine has the labels that agents/tracepoint sets in a span.
func answer(w http.ResponseWriter, r *http.Request) {
	var id [24]byte
	_, _ = rand.Read(id[:]) // it never fails
	const keys = "trace_idspan_id"
	values := hex.EncodeToString(id[:])
	pprof.Do(r.Context(), pprof.Labels(keys[:8], values[:32], keys[8:], values[32:]), func(context.Context) {
		var all []item
		if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"total": price(all), "items": all}) // the client notices
	})
}
