package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// zipped returns n bytes of repeated text after head, compressed.
func zipped(t *testing.T, head []byte, n int, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(head); err != nil {
		t.Fatal(err)
	}
	piece := strings.Repeat(text, (1<<20)/len(text))
	for range n / len(piece) {
		if _, err := io.WriteString(w, piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// within returns the start of a message whose only field contains a message that starts with inner and has n bytes.
func within(field protowire.Number, inner []byte, n int) (head []byte, size int) {
	head = protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType), uint64(n))
	return append(head, inner...), len(head) + n
}

// A server that receives traces over gRPC refuses bombs, requests of empty spans and huge metadata, in clear text and
// encrypted. Its memory stays bounded, and slow calls keep nobody out.
func TestAttacksOverGRPC(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	for _, name := range []string{"clear", "encrypted"} {
		t.Run(name, func(t *testing.T) {
			a := &target{process: newProcess(t, t.TempDir())}
			a.more = []string{"--memory", "1GiB"}
			a.cgroup = limitedMemory(t, 1280<<20)
			if name == "encrypted" {
				authority := newAuthority(t)
				files := authority.files(t, "OTLP")
				t.Setenv("SIBYL_OTLP_TLS_CERT", files["SIBYL_OTLP_TLS_CERT"])
				t.Setenv("SIBYL_OTLP_TLS_KEY", files["SIBYL_OTLP_TLS_KEY"])
				a.encryption = authority.trusted()
			}
			a.start()
			t.Cleanup(func() { a.end(os.Kill) })
			a.ready()
			a.slowCalls(t)
			a.hugeMetadata(t)
			const size = 60 << 20 // less than the limit
			head, n := within(2, nil, size)
			head, _ = within(1, head, n)
			refuse := func(name, code string, body []byte) {
				began := time.Now()
				a.refusedRPC(t, name, a.rpc(t, "", "gzip", framed(body)), code)
				t.Logf("%s, %d bytes: refused after %v", name, len(body), time.Since(began).Round(time.Millisecond))
			}
			refuse("30 million empty spans", "3", zipped(t, head, size, "\x12\x00"))
			refuse("a bomb of 1 GiB", "8", zipped(t, nil, 1<<30, "\x00"))
			if r := a.rpc(t, "", "", bytes.NewReader(make([]byte, 5))); r == nil || r.grpc != "0" {
				t.Errorf("afterwards: %+v", r)
			}
			t.Logf("peak memory %d MiB", peakMemory(t, a.cmd.Process.Pid)>>20)
		})
	}
}

// slowCalls makes 4 000 calls whose messages never end, on 16 connections, and others meanwhile. A call that is cut off
// is repeated, as exporters do.
func (a *target) slowCalls(t *testing.T) {
	var all, begun sync.WaitGroup
	defer all.Wait()
	body, end := io.Pipe()
	defer end.Close()
	for range 16 {
		transport := a.transport(t)
		for range 250 {
			begun.Add(1)
			begin := sync.OnceFunc(begun.Done)
			sent := readFunc(func() (int, error) { begin(); return 0, io.EOF })
			head := bytes.NewReader([]byte{0, 0, 0, 0, 9, 1})
			q := a.rpcRequest(t, "", "", io.MultiReader(head, sent, body))
			all.Go(func() {
				defer begin() // it may be refused before
				if r, err := transport.RoundTrip(q); err == nil {
					r.Body.Close()
				}
			})
		}
	}
	begun.Wait()
	time.Sleep(2 * time.Second) // then they are slow
	var slowest time.Duration
	repeated := 0
	for range 50 {
		began := time.Now()
		r := a.rpc(t, "", "", bytes.NewReader(make([]byte, 5)))
		for i := 0; i < 5 && (r == nil || r.grpc != "0"); i++ {
			time.Sleep(100 * time.Millisecond)
			repeated++
			r = a.rpc(t, "", "", bytes.NewReader(make([]byte, 5)))
		}
		if r == nil || r.grpc != "0" {
			t.Errorf("beside slow calls: %+v", r)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("beside slow calls: %v at most, %d repeated", slowest.Round(time.Millisecond), repeated)
}

// readFunc is a Read method that ignores its argument.
type readFunc func() (int, error)

func (f readFunc) Read([]byte) (int, error) { return f() }

// hugeMetadata sends 10 MB of headers.
func (a *target) hugeMetadata(t *testing.T) {
	list := make([]string, 0, 20_000)
	for i := range 10_000 {
		list = append(list, "h-"+strings.Repeat("x", i%100), strings.Repeat("y", 1000))
	}
	if r := a.rpc(t, "", "", bytes.NewReader(make([]byte, 5)), list...); r != nil && r.grpc == "0" {
		t.Errorf("huge metadata: got %+v, want a refusal", r)
	}
}

// trusted returns the configuration of clients of servers that a has issued certificates for.
func (a *authority) trusted(own ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &tls.Config{RootCAs: roots, Certificates: own}
}

// Clients without a certificate that the configured authority has issued for clients, and that is valid, get no answer,
// whatever tenant their certificate names. Neither do those that want an old version of TLS, or none.
func TestBadCertificates(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	env := a.files(t, "OTLP")
	maps.Copy(env, a.files(t, "API"))
	h := newHouse(t, env)
	of := func(issuer *authority, change func(*x509.Certificate)) []tls.Certificate {
		c := &x509.Certificate{
			Subject:     pkix.Name{Organization: []string{"a"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		change(c)
		return []tls.Certificate{issuer.issue(t, c)}
	}
	same := func(*x509.Certificate) {}
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	unborn := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }
	server := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	before := h.requests()
	for name, address := range map[string]net.Addr{
		"HTTP": h.Addresses().HTTP, "gRPC": h.Addresses().GRPC, "API": h.Addresses().API,
	} {
		for _, c := range []struct {
			name    string
			own     []tls.Certificate
			highest uint16
			want    bool
		}{
			{"valid", of(a, same), 0, true},
			{"valid, TLS 1.2", of(a, same), tls.VersionTLS12, true},
			{"TLS 1.1", of(a, same), tls.VersionTLS11, false},
			{"none", nil, 0, false},
			{"none, TLS 1.2", nil, tls.VersionTLS12, false},
			{"expired", of(a, expired), 0, false},
			{"not yet valid", of(a, unborn), 0, false},
			{"for servers", of(a, server), 0, false},
			{"another authority", of(other, same), 0, false},
			{"its own authority", of(&authority{}, same), 0, false},
		} {
			config := a.trusted(c.own...)
			config.MaxVersion, config.MinVersion, config.NextProtos = c.highest, tls.VersionTLS10, []string{"h2"}
			if name != "gRPC" {
				config.NextProtos = []string{"http/1.1"}
			}
			if got := answers(t, address, config); got != c.want {
				t.Errorf("%s, %s: answered: %t, want %t", name, c.name, got, c.want)
			}
		}
		r := raw(t, address.String(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 0)
		if r != nil && r.code != http.StatusBadRequest {
			t.Errorf("%s, clear text: %+v", name, r)
		}
	}
	if got := h.requests(); !slices.Equal(got, before) {
		t.Errorf("requests were accepted: %v, before %v", got, before)
	}
}

// answers reports whether the server at address answers anything after a handshake. It starts HTTP/1 or HTTP/2.
func answers(t *testing.T, address net.Addr, config *tls.Config) bool {
	t.Helper()
	config.ServerName = "127.0.0.1"
	plain, err := new(net.Dialer).DialContext(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c := tls.Client(plain, config)
	text := "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if config.NextProtos[0] == "h2" {
		text = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	}
	if _, err := io.WriteString(c, text); err != nil {
		return false
	}
	_, err = bufio.NewReader(c).ReadByte()
	return err == nil
}

// Connections that don't finish their handshake, twice as many as there is room for, keep out nobody who does.
func TestUnfinishedHandshakes(t *testing.T) {
	authority := newAuthority(t)
	for key, file := range authority.files(t, "OTLP") {
		t.Setenv(key, file)
	}
	v := newProcess(t, t.TempDir())
	v.http, v.files = freeAddress(t), 1000
	v.start()
	t.Cleanup(func() { v.end(os.Kill) })
	v.ready()
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" // the start of a ClientHello
	var all sync.WaitGroup
	defer all.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for _, address := range []string{v.http, v.grpc} {
		for i := range 60 { // there is room for 31
			all.Go(func() { keepConnecting(t, address, []string{"", hello, "\x00\x01\x02"}[i%3], stop) })
		}
	}
	time.Sleep(time.Second)
	config := authority.trusted(authority.client(t, "default"))
	for _, c := range []struct{ address, protocol string }{{v.http, "http/1.1"}, {v.grpc, "h2"}} {
		to, err := net.ResolveTCPAddr("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		config.NextProtos = []string{c.protocol}
		for range 20 {
			if !answers(t, to, config) {
				t.Errorf("%s: no answer beside unfinished handshakes", c.protocol)
			}
		}
	}
}

// keepConnecting opens connections to address and sends text on each. It opens the next one a second after the server
// has closed the last one.
func keepConnecting(t *testing.T, address, text string, stop <-chan struct{}) {
	for {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, text)
		closed := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, c)
			close(closed)
		}()
		select {
		case <-closed:
		case <-stop:
		}
		c.Close()
		select {
		case <-time.After(time.Second):
		case <-stop:
			return
		}
	}
}
