package login

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
)

// client is an address from which people log in, or a network of IPv6: providers give each customer one. Limits hold
// for each client, so that one on the Internet can't keep others from logging in. Those on private networks are trusted
// not to claim addresses of others. It is zero if the address is unknown.
type client = netip.Prefix

// clientNetwork is the length of the prefix of a customer's network in IPv6.
const clientNetwork = 56

// clientOf returns the client that sent r. A proxy must have a private address, because clients elsewhere can claim to
// be forwarded for anyone.
func clientOf(r *http.Request) client {
	at := access.From(r)
	if at.IsLoopback() || at.IsPrivate() {
		if named := access.ForwardedFor(r); named.IsValid() {
			at = named
		}
	}
	bits := at.BitLen()
	if at.Is6() {
		bits = clientNetwork
	}
	c, _ := at.Prefix(bits) // fails only if the address is unknown
	return c
}

// starts limits how often log-ins may start. It is safe for concurrent use.
type starts struct {
	mu      sync.Mutex
	all     time.Time            // each start adds startInterval; never in the past
	clients map[client]time.Time // each start of the client adds clientInterval; in the future
}

// admit reports whether a client may start another log-in. It remembers clients that started one recently, which the
// limit on all starts bounds.
func (s *starts) admit(c client, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, own := later(s.all, now), later(s.clients[c], now)
	if all.Sub(now) > (startBurst-1)*startInterval || own.Sub(now) > (clientBurst-1)*clientInterval {
		return false
	}
	for c, until := range s.clients {
		if !until.After(now) {
			delete(s.clients, c)
		}
	}
	s.all, s.clients[c] = all.Add(startInterval), own.Add(clientInterval)
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// exchanges limits the log-ins that the provider is asked about at a time. It is safe for concurrent use.
type exchanges struct {
	mu      sync.Mutex
	all     int
	clients map[client]int // those of each client
}

// begin reports whether another log-in of a client may take place. The caller must then call end.
func (e *exchanges) begin(c client) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == maxExchanges || e.clients[c] == clientExchanges {
		return false
	}
	e.all++
	e.clients[c]++
	return true
}

func (e *exchanges) end(c client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all--
	if e.clients[c]--; e.clients[c] == 0 {
		delete(e.clients, c)
	}
}
