package access

import (
	"net/http"
	"net/netip"
	"strings"
)

// From returns the address of the client or the proxy that sent r, or the zero Addr if the address is unknown.
func From(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap()
}

// ForwardedFor returns the address of the client according to the last proxy before Sibyl, or the zero Addr if no proxy
// names a client. Don't trust the address, because anyone can claim to be a proxy.
func ForwardedFor(r *http.Request) netip.Addr {
	claimed := r.Header.Get("X-Real-Ip")
	if all := strings.Join(r.Header.Values("X-Forwarded-For"), ","); all != "" {
		claimed = all[strings.LastIndexByte(all, ',')+1:]
	}
	at, _ := netip.ParseAddr(strings.TrimSpace(claimed))
	return at.Unmap().WithZone("")
}
