package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrForbiddenAddress means that the name of an endpoint resolves to an address that must not be called.
var ErrForbiddenAddress = errors.New("the address is not public: allow-private permits it")

// special denies the special-purpose networks in the registries of IANA: loopback, private, link-local, shared,
// reserved and others.
var special = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())

// isPublic reports whether an address is on the public Internet. An IPv6 address that represents an IPv4 address is
// checked as the latter.
func isPublic(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if ssrf.IPv6NAT64Prefix.Contains(a) {
		bytes := a.As16()
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return special.SafeAddr(a) == nil
}

// denyPrivate is a [net.Dialer.Control] that denies connections to addresses that are not public. It checks the address
// after name resolution, so a name cannot resolve to a different address between check and connection.
func denyPrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !isPublic(at.Addr()) {
		return fmt.Errorf("%s: %w", at.Addr(), ErrForbiddenAddress)
	}
	return nil
}
