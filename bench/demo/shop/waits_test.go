package shop

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// newTestService returns a service without functions in its own folder.
func newTestService(t *testing.T, name string) *service {
	t.Helper()
	s := &service{
		name:     name,
		dir:      t.TempDir(),
		calls:    make(map[string]*atomic.Bool),
		archives: make(map[string]*archive),
	}
	t.Cleanup(func() {
		if err := s.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestDNS: the name server answers queries for addresses, whatever the name, and nothing else.
func TestDNS(t *testing.T) {
	s := newTestService(t, Outside)
	c, err := listenDNS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.serveDNS(c) })
	defer serving.Wait()
	defer func() { _ = c.Close() }()
	server := netip.MustParseAddrPort(c.LocalAddr().String())
	for i := range uint16(3) {
		if err := lookUp(server, bankHost, i); err != nil {
			t.Error(err)
		}
	}
	if err := lookUp(server, "not..a.host", 1); err == nil {
		t.Error("a broken name is looked up")
	}
	for _, query := range []string{
		"", "\x00", string(make([]byte, 12)),
		"\x00\x01\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01",
	} {
		if reply, host := answerDNS([]byte(query)); reply != nil || host != "" {
			t.Errorf("%q is answered", query)
		}
	}
}

// TestDNSFault: only the host of the fault is answered late.
func TestDNSFault(t *testing.T) {
	s := newTestService(t, Outside)
	for _, seed := range []uint64{0, 1} {
		f, err := newFault(DNS, seed)
		if err != nil {
			t.Fatal(err)
		}
		s.fault.Store(f)
		late := 0
		for _, host := range []string{carrierHost, bankHost} {
			if s.faultAt(DNS, host) != nil {
				late++
			}
		}
		if !s.contains(f) || late != 1 {
			t.Errorf("seed %d: %d hosts are late", seed, late)
		}
	}
}

// TestLock: a lock is held by one caller at a time, and is released even if the function fails.
func TestLock(t *testing.T) {
	s := newTestService(t, "inventory")
	var running sync.WaitGroup
	var held atomic.Int64 // the race detector doesn't know file locks
	for range 8 {
		running.Go(func() {
			err := s.withLock("stock.update", func() error {
				if n := held.Add(1); n > 1 {
					t.Errorf("%d callers hold the lock", n)
				}
				runtime.Gosched()
				held.Add(-1)
				return os.ErrInvalid
			})
			if err == nil {
				t.Error("no error")
			}
		})
	}
	running.Wait()
}

// TestArchive: an archive can be read from the cache and from the disk.
func TestArchive(t *testing.T) {
	s := newTestService(t, "orders")
	if _, err := s.reads("history.archive"); err != nil {
		t.Fatal(err)
	}
	a := s.archives["history.archive"]
	if err := a.read(a.file, coldBytes); err != nil {
		t.Error(err)
	}
	cold, err := a.cold()
	if err != nil {
		t.Skipf("the temporary directory is on no disk: %v", err)
	}
	defer func() { _ = cold.Close() }()
	for range 3 {
		if err := a.read(cold, coldBytes); err != nil {
			t.Error(err)
		}
	}
}

// TestListenDNS: two name servers have different addresses.
func TestListenDNS(t *testing.T) {
	var addresses []string
	for range 2 {
		c, err := listenDNS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		addresses = append(addresses, c.LocalAddr().(*net.UDPAddr).String())
	}
	if addresses[0] == addresses[1] {
		t.Errorf("both are at %s", addresses[0])
	}
}
