package server

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The same signal twice in a row is one: who ends a group of processes sends it to the first of them once more. Another one later ends what takes
// too long.
func TestSignals(t *testing.T) {
	v := newVictim(t, t.TempDir())
	v.start()
	v.ready()
	c, err := net.Dial("tcp", v.api)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n"); err != nil { // it waits for the rest
		t.Fatal(err)
	}
	v.ready() // addresses take connections in order
	ended := make(chan struct{})
	for range 2 {
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // else the system makes one of them
	}
	go func() {
		_ = v.cmd.Wait() // what it returns is looked at below
		close(ended)
	}()
	select {
	case <-ended:
		t.Fatalf("it ended: %v\n%s", v.cmd.ProcessState, v.logged())
	case <-time.After(2 * time.Second):
	}
	if !strings.Contains(v.logged(), "stopping") {
		t.Errorf("it does not stop\n%s", v.logged())
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	if status, ok := v.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("%v", v.cmd.ProcessState)
	}
}
