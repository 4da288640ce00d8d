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

// Whoever opens a socket says something soon, and says what is long in one go. After that he may be silent.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := control.New(nil, control.Options{})
		open := func() (*socket, net.Conn) {
			here, there := net.Pipe()
			return &socket{Conn: here, meter: plane.Meter()}, there
		}
		late := func(s *socket) {
			t.Helper()
			began := time.Now()
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > messageWithin {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		silent, _ := open()
		late(silent)
		slow, from := open()
		say := func(n int) {
			t.Helper()
			go func() { _, _ = from.Write(make([]byte, n)) }() // all is read
			if got, err := slow.Read(make([]byte, n)); got != n || err != nil {
				t.Fatal(got, err)
			}
		}
		say(10)
		slow.taken()
		time.Sleep(time.Hour)
		say(longMessage + 1)
		late(slow)
	})
}
