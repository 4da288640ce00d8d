package server

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Two equal signals in a row count as one, because a shell that ends a process group may send a second one to its
// leader. A later signal ends a shutdown that takes too long.
func TestSignals(t *testing.T) {
	t.Parallel()
	v := newProcess(t, t.TempDir())
	v.start()
	v.ready()
	c, err := net.Dial("tcp", v.api)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n"); err != nil { // the server waits for the rest
		t.Fatal(err)
	}
	v.ready() // connections are accepted in order, so the server has accepted the first
	ended := make(chan struct{})
	for range 2 {
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // otherwise the kernel merges them
	}
	go func() {
		_ = v.cmd.Wait() // sets ProcessState, checked below
		close(ended)
	}()
	eventually(t, "the server stops", func() bool { return strings.Contains(v.logged(), "stopping") })
	select {
	case <-ended:
		t.Fatalf("the server ended: %v\n%s", v.cmd.ProcessState, v.logged())
	case <-time.After(2 * time.Second):
	}
	// A busy server may still take the next signal for the second of a pair.
	for running := true; running; {
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case <-ended:
			running = false
		case <-time.After(2 * time.Second):
		}
	}
	if status, ok := v.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("%v", v.cmd.ProcessState)
	}
}
