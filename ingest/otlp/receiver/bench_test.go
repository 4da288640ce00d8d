package receiver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childServer is an environment variable that makes the test binary a server whose intake drops everything.
const childServer = "SIBYL_RECEIVER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childServer) == "" {
		os.Exit(m.Run())
	}
	if err := dropAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dropAll serves until in ends, then writes the processor time in ns and the maximum memory in KiB of the process.
func dropAll(in io.Reader, out io.Writer) error {
	s, err := New(drop{}, Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	if err := s.Listen(context.Background()); err != nil {
		return err
	}
	fmt.Fprintln(out, s.GRPCAddr(), s.HTTPAddr())
	go s.Serve()
	io.Copy(io.Discard, in)
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return err
	}
	fmt.Fprintln(out, used.Utime.Nano()+used.Stime.Nano(), used.Maxrss)
	return nil
}

// child is a server in its own process.
type child struct {
	grpc, http string // addresses
	// end ends the process, and returns its processor time and its maximum memory in bytes.
	end func() (processor time.Duration, memory int64)
}

func startChild(t testing.TB) child {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), childServer+"=1")
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	must(t, err)
	out, err := server.StdoutPipe()
	must(t, err)
	must(t, server.Start())
	lines := bufio.NewReader(out)
	var c child
	_, err = fmt.Fscanln(lines, &c.grpc, &c.http)
	must(t, err)
	c.end = func() (time.Duration, int64) {
		must(t, in.Close())
		var processor, memory int64
		_, err := fmt.Fscanln(lines, &processor, &memory)
		must(t, err)
		must(t, server.Wait())
		return time.Duration(processor), memory << 10
	}
	return c
}

// drop is an intake that discards requests.
type drop struct{}

func (drop) Take(context.Context, []byte, Format) (Rejected, error) { return Rejected{}, nil }

// BenchmarkGRPC measures the transport alone, between two processes: batches of 512 spans with 10 attributes, sent over
// four connections. It reports spans/s, and the processor time of the server alone per million spans.
func BenchmarkGRPC(b *testing.B) {
	server := startChild(b)
	batch := requestOf(512, 10)
	b.SetBytes(int64(len(batch)))
	work := make(chan struct{})
	var senders sync.WaitGroup
	for range 4 {
		conn := dial(b, server.grpc)
		senders.Go(func() {
			for range work {
				if _, err := exportRaw(b.Context(), conn, batch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	started := time.Now()
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	senders.Wait()
	spans := float64(b.N) * 512
	b.ReportMetric(spans/time.Since(started).Seconds(), "spans/s")

	used, _ := server.end()
	b.ReportMetric(used.Seconds()/spans*1e6, "server-CPU-s/Mspan")
}
