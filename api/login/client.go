package login

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
)

// client identifies the origin of a log-in: an IPv4 address or, because Internet providers assign each customer a
// network, an IPv6 network. Limits apply per client, so that no client on the Internet can keep others from logging in.
// Senders on private networks are trusted to name the client that they forward for. The zero Prefix stands for an
// unknown address.
type client = netip.Prefix

// clientNetwork is the length in bits of the prefix that identifies a customer's IPv6 network.
const clientNetwork = 56

// clientOf returns the client that sent r. If r comes from a private or loopback address, the sender may be a proxy,
// and clientOf returns the client that it forwarded for. Other senders aren't believed, because anyone can claim to be
// a proxy.
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

// starts limits the rate at which log-ins may start. It is safe for concurrent use.
type starts struct {
	mu      sync.Mutex
	all     time.Time            // each start advances it by startInterval, starting from now if it is in the past
	clients map[client]time.Time // the same per client, with clientInterval; times in the past are deleted
}

// admit reports whether client c may start another log-in. If so, it counts the start. s.clients only contains clients
// that started a log-in recently, so its size is bounded by the limit on all starts.
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

// exchanges limits the number of log-ins that are completed with the provider at the same time. It is safe for
// concurrent use.
type exchanges struct {
	mu      sync.Mutex
	all     int
	clients map[client]int // by client; never 0
}

// begin reports whether client c may complete another log-in now. If so, the caller must call end afterwards.
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
