package shop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Resolver is the key for the address of the shop's name server among the addresses of services.
const Resolver = "resolver"

// Settings of the name server, which answers at once unless it has the fault [DNS], and of its clients.
const (
	dnsDelay    = 80 * time.Millisecond
	dnsTimeout  = 5 * time.Second // of a query, as in the C library
	dnsMessage  = 512             // bytes of a message over UDP
	dnsTTL      = 5               // seconds
	dnsPort     = 53
	dnsAttempts = 32 // addresses of loopback to try
)

// listenDNS opens a socket for the name server: at port 53 of a loopback address, as local resolvers do, or at a free
// port if this process may not use port 53.
func listenDNS(ctx context.Context) (net.PacketConn, error) {
	var l net.ListenConfig
	for i := range dnsAttempts {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 53, byte(1 + i)}), dnsPort)
		if c, err := l.ListenPacket(ctx, "udp4", address.String()); err == nil {
			return c, nil
		}
	}
	c, err := l.ListenPacket(ctx, "udp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for DNS queries: %w", err)
	}
	return c, nil
}

// serveDNS answers queries until the socket is closed. Every name resolves to this host.
func (s *service) serveDNS(c net.PacketConn) {
	buffer := make([]byte, dnsMessage)
	for {
		n, from, err := c.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		reply, host := answerDNS(buffer[:n])
		if err != nil || reply == nil {
			continue
		}
		delay := time.Duration(0)
		if s.faultAt(DNS, host) != nil {
			delay = dnsDelay
		}
		time.AfterFunc(delay, func() { _, _ = c.WriteTo(reply, from) }) // fails if the asker has gone, or the socket
	}
}

// answerDNS returns the answer to a query for a host, or nil for anything else.
func answerDNS(query []byte) (reply []byte, host string) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || m.Response || len(m.Questions) != 1 {
		return nil, ""
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: dnsTTL},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil, ""
	}
	return reply, strings.TrimSuffix(q.Name.String(), ".")
}

// resolves returns a function that looks up the name of a host as C programs do: without a cache, through a socket that
// is connected to the name server. The thread waits in poll for the answer. Go's resolver would only park its
// goroutine, and no thread would wait.
func (s *service) resolves(name, host string) step {
	return s.leaf(name, func(c *call) error {
		server, err := netip.ParseAddrPort(s.peers[Resolver][0])
		if err != nil {
			return fmt.Errorf("address of the name server: %w", err)
		}
		if err := lookUp(server, host, uint16(c.request.Seed)); err != nil {
			return fmt.Errorf("look up %s: %w", host, err)
		}
		return nil
	})
}

// lookUp asks a name server for the addresses of a host and checks that it answers.
func lookUp(server netip.AddrPort, host string, id uint16) (err error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	query, err := m.Pack()
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	unix.CloseOnExec(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(server.Port()), Addr: server.Addr().As4()}); err != nil {
		return err
	}
	if _, err := unix.Write(fd, query); err != nil {
		return err
	}
	if err := waitReadable(fd, dnsTimeout); err != nil {
		return err
	}
	answer := make([]byte, dnsMessage)
	n, err := unix.Read(fd, answer)
	if err != nil {
		return err
	}
	if err := m.Unpack(answer[:n]); err != nil {
		return err
	}
	if m.ID != id || len(m.Answers) == 0 {
		return errors.New("no answer to the question")
	}
	return nil
}

// waitReadable blocks the thread until fd can be read. It returns an error after timeout.
func waitReadable(fd int, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(max(0, time.Until(deadline)).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR): // by the runtime
		case err != nil:
			return err
		case n == 0:
			return errors.New("the name server does not answer")
		default:
			return nil
		}
	}
}
