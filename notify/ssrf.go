package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrForbiddenAddress means that the name of an endpoint resolves to an address that must not be called.
var ErrForbiddenAddress = errors.New("the address is not public: to permit it, set allow-private: true")

// special denies the special-purpose networks in IANA's registries: loopback, private, link-local, shared, reserved and
// others.
var special = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())

// isPublic reports whether a is on the public Internet. It checks an IPv6 address that represents an IPv4 address as
// the IPv4 address.
func isPublic(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if ssrf.IPv6NAT64Prefix.Contains(a) {
		bytes := a.As16()
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return special.SafeAddr(a) == nil
}

// IsPrivateHost reports whether host can't have a public address, because it is localhost or an address that isn't
// public. It returns false for all other names, because their addresses are only known when connecting.
func IsPrivateHost(host string) bool {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return !isPublic(a)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// denyPrivate is a [net.Dialer.Control] that denies connections to addresses that aren't public. It checks the address
// after name resolution, so a name can't resolve to a different address between check and connection.
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
