package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrForbiddenAddress is wrapped by errors about endpoints whose name leads to an address that must not be called.
var ErrForbiddenAddress = errors.New("the address is not public: allow-private lets it be called")

// special holds the networks that netip has no word for and that are not public: own networks of providers, where some have their
// metadata servers, and what is reserved.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10", "5f00::/16",
)

// translated is the network of IPv6 addresses that stand for IPv4 addresses: those in the last four bytes.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// public reports whether an address may be called by whoever can name it.
func public(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if translated.Contains(a) {
		bytes := a.As16()
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() { // loopback, link-local, multicast and unspecified are no global unicast
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// guard refuses to connect to what is not public. It is asked with the very address that is called, after names were resolved: a name
// cannot lead to one address when it is checked and to another afterwards.
func guard(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !public(at.Addr()) {
		return fmt.Errorf("%s: %w", at.Addr(), ErrForbiddenAddress)
	}
	return nil
}
