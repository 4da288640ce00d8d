package opamp

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/control"
)

// The first message and the rest of a long message must arrive within messageTimeout. A client may be silent between
// messages.
func TestMessageTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := control.New(nil, control.Options{})
		open := func() (*socket, net.Conn) {
			here, there := net.Pipe()
			return &socket{Conn: here, meter: plane.Messages.Meter()}, there
		}
		expectTimeout := func(s *socket) {
			t.Helper()
			began := time.Now()
			_, err := s.Read(make([]byte, 1))
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > messageTimeout {
				t.Errorf("error %v after %s, want a timeout after at most %s", err, time.Since(began), messageTimeout)
			}
		}
		silent, _ := open()
		expectTimeout(silent)
		slow, from := open()
		send := func(n int) {
			t.Helper()
			go func() { _, _ = from.Write(make([]byte, n)) }() // it is read completely
			if got, err := slow.Read(make([]byte, n)); got != n || err != nil {
				t.Fatal(got, err)
			}
		}
		send(10)
		slow.endMessage()
		time.Sleep(time.Hour)
		send(longMessage + 1)
		expectTimeout(slow)
	})
}
