package notify

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/store"
)

// mailServer is a small SMTP server on loopback. It accepts e-mails and records them.
type mailServer struct {
	net.Listener
	tls      *tls.Config
	roots    *x509.CertPool
	implicit bool     // connections are encrypted from the start
	starttls bool     // it offers STARTTLS
	auth     string   // mechanisms that it offers, if any
	refuse   []string // recipients
	busy     int      // number of e-mails to refuse for now
	mails    chan delivered
}

type delivered struct {
	from      string
	to        []string
	user      string // that logged in
	encrypted bool
	text      string
}

// newMailServer starts a server after set has configured it.
func newMailServer(t *testing.T, set func(*mailServer)) *mailServer {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(web.Close)
	s := &mailServer{
		tls:      &tls.Config{Certificates: web.TLS.Certificates},
		roots:    x509.NewCertPool(),
		starttls: true,
		auth:     "PLAIN LOGIN",
		mails:    make(chan delivered, 10),
	}
	s.roots.AddCert(web.Certificate())
	set(s)
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	go func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// serve answers the commands of one client until it leaves.
func (s *mailServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var m delivered
	if s.implicit {
		conn, m.encrypted = tls.Server(conn, s.tls), true
	}
	r := bufio.NewReader(conn)
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	hear := func() string {
		line, err := r.ReadString('\n')
		if err != nil {
			runtime.Goexit() // the client is gone
		}
		return strings.TrimRight(line, "\r\n")
	}
	say("220 mail.test ESMTP")
	for {
		line := hear()
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say("250-mail.test")
			if s.starttls && !m.encrypted {
				say("250-STARTTLS")
			}
			if s.auth != "" {
				say("250-AUTH " + s.auth)
			}
			say("250 8BITMIME")
		case "STARTTLS":
			say("220 go ahead")
			conn, m.encrypted = tls.Server(conn, s.tls), true
			r = bufio.NewReader(conn)
		case "AUTH":
			if m.user = s.login(rest, say, hear); m.user == "" {
				say("535 5.7.8 wrong password")
				continue
			}
			say("235 welcome")
		case "MAIL":
			m.from, m.to = rest, nil
			say("250 ok")
		case "RCPT":
			if s.refuses(rest) {
				say("550 5.1.1 no such user")
				continue
			}
			m.to = append(m.to, strings.Trim(strings.TrimPrefix(rest, "TO:"), "<>"))
			say("250 ok")
		case "DATA":
			say("354 go ahead")
			var b strings.Builder
			for line := hear(); line != "."; line = hear() {
				b.WriteString(strings.TrimPrefix(line, ".") + "\r\n")
			}
			if s.busy > 0 {
				s.busy--
				say("451 4.3.2 try again later")
				continue
			}
			m.text = b.String()
			s.mails <- m
			say("250 queued")
		case "QUIT":
			say("221 bye")
			return
		case "":
			return
		default:
			say("502 unknown command")
		}
	}
}

func (s *mailServer) refuses(recipient string) bool {
	for _, x := range s.refuse {
		if strings.Contains(recipient, x) {
			return true
		}
	}
	return false
}

// login returns the user of a login with the right password, or "" if the password is wrong.
func (s *mailServer) login(command string, say func(string), hear func() string) string {
	decode := func(text string) string { b, _ := base64.StdEncoding.DecodeString(text); return string(b) }
	ask := func(what string) string {
		say("334 " + base64.StdEncoding.EncodeToString([]byte(what)))
		return decode(hear())
	}
	mechanism, initial, _ := strings.Cut(command, " ")
	user, password := "", ""
	if mechanism == "PLAIN" {
		if parts := strings.Split(decode(initial), "\x00"); len(parts) == 3 {
			user, password = parts[1], parts[2]
		}
	} else {
		user, password = ask("Username:"), ask("Password:")
	}
	if password != "geheim" {
		return ""
	}
	return user
}

// endpoint returns a destination of e-mails at the server.
func (s *mailServer) endpoint(security string) Endpoint {
	return Endpoint{Name: "mail", Format: "email", AllowPrivate: true, Mail: &Mail{
		Server:   s.Addr().String(),
		Security: security,
		From:     mail.Address{Name: "Sibyl ☂", Address: "sibyl@example.com"},
		To:       []mail.Address{{Address: "alice@example.com"}, {Name: "Bob", Address: "bob@example.com"}},
		Username: "sibyl",
		Password: "geheim",
	}}
}

// caller returns a caller that trusts the server's certificate.
func (s *mailServer) caller(t *testing.T, e Endpoint) *caller {
	t.Helper()
	c, err := newCaller(&e, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c.mail.tls.RootCAs = s.roots
	return c
}

// bodies returns the header of an e-mail, and its alternatives by type.
func bodies(t *testing.T, text string) (mail.Header, map[string]string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatal(kind, err)
	}
	all := make(map[string]string)
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return m.Header, all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		all[part.Header.Get("Content-Type")] = string(content)
	}
}

// An e-mail reaches all recipients over an encrypted connection, with and without STARTTLS, after a login with the
// mechanism that the server offers. Text from traces is escaped in HTML.
func TestMail(t *testing.T) {
	event := NewIncidentEvent(sampleIncident(IncidentOpened, "shop</b><script>", "POST\r\n.\r\n/checkout"))
	m, _ := message(event, "email")
	for security, set := range map[string]func(*mailServer){
		"starttls": func(*mailServer) {},
		"tls":      func(s *mailServer) { s.implicit, s.auth = true, "LOGIN" },
	} {
		s := newMailServer(t, set)
		if answer, err := s.caller(t, s.endpoint(security)).call(t.Context(), m); err != nil || answer.Err() != nil ||
			answer.Partly {
			t.Fatalf("%s: %+v %v", security, answer, err)
		}
		got := <-s.mails
		if !got.encrypted || got.user != "sibyl" || !strings.Contains(got.from, "<sibyl@example.com>") ||
			strings.Join(got.to, " ") != "alice@example.com bob@example.com" {
			t.Errorf("%s: %+v", security, got)
		}
		header, parts := bodies(t, got.text)
		subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
		if err != nil || !strings.HasPrefix(subject, "Incident opened, critical: Requests of shop") {
			t.Errorf("subject %q %v", subject, err)
		}
		if id, thread := header.Get("Message-Id"), header.Get("References"); id != "<"+event.ID+"@example.com>" ||
			thread != "<sibyl-incident-0000000000000abc@example.com>" {
			t.Errorf("Message-ID %s, References %s", id, thread)
		}
		text, page := parts["text/plain; charset=utf-8"], parts["text/html; charset=utf-8"]
		for _, want := range []string{
			"Requests of shop", "Owner: Payments (#payments)", "Began: 2026-09-21 14:13:20 UTC",
			"Annotations: deploy payment 1.8.2", "https://sibyl.example/incidents/0000000000000abc",
			"?dialog=acknowledge", "?dialog=mute", "?dialog=accept",
			"https://jaeger.example/trace/186ada6fd6ba3a0461a26db26d92c674", "https://wiki.example/payment",
		} {
			if !strings.Contains(text, want) || !strings.Contains(page, strings.TrimPrefix(
				strings.TrimPrefix(want, "Owner: "), "Began: ")) && !strings.HasPrefix(want, "Annotations") {
				t.Errorf("%s is missing in\n%s\n%s", want, text, page)
			}
		}
		if strings.Contains(page, "<script") || !strings.Contains(page, "shop&lt;/b&gt;") {
			t.Errorf("text from traces is not escaped: %s", page)
		}
	}
}

// Nothing is sent over a connection that isn't as secure as configured, to a server that refuses the login or every
// recipient, or to a private address. Errors don't contain the password.
func TestMailFails(t *testing.T) {
	m, _ := message(NewTest(opened, ""), "email")
	for want, c := range map[string]struct {
		security string
		set      func(*mailServer)
		change   func(*Endpoint)
	}{
		"does not offer STARTTLS": {"starttls", func(s *mailServer) { s.starttls = false }, nil},
		"certificate":             {"starttls", func(s *mailServer) { s.roots = x509.NewCertPool() }, nil},
		"none of the mechanisms":  {"starttls", func(s *mailServer) { s.auth = "XOAUTH2" }, nil},
		"535": {
			"starttls", func(*mailServer) {},
			func(e *Endpoint) { e.Mail.Password = "geheim2" },
		},
		"every recipient was refused": {"starttls", func(s *mailServer) { s.refuse = []string{"alice", "bob"} }, nil},
		"not public":                  {"starttls", func(*mailServer) {}, func(e *Endpoint) { e.AllowPrivate = false }},
		"message: 451":                {"starttls", func(s *mailServer) { s.busy = 1 }, nil},
	} {
		s := newMailServer(t, c.set)
		e := s.endpoint(c.security)
		if c.change != nil {
			c.change(&e)
		}
		_, err := s.caller(t, e).call(t.Context(), m)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v, want %q", err, want)
		}
		if len(s.mails) > 0 {
			t.Errorf("%s: an e-mail was delivered", want)
		}
	}
	plain := (&mailServer{Listener: listening(t)}).endpoint("none")
	if _, err := newCaller(&plain, time.Now); err == nil || !strings.Contains(err.Error(), "unencrypted") {
		t.Errorf("a password without encryption: %v", err)
	}
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A mail that the server refuses temporarily is retried with the same Message-ID. A recipient that it refuses
// permanently is reported, and the others still get the mail.
func TestMailQueue(t *testing.T) {
	s := newMailServer(t, func(s *mailServer) { s.busy, s.refuse = 1, []string{"bob"} })
	outbox, closeStore := openOutbox(t, t.TempDir())
	defer closeStore()
	n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, []Endpoint{s.endpoint("starttls")})
	if err != nil {
		t.Fatal(err)
	}
	n.callers[0].mail.tls.RootCAs = s.roots
	event := NewIncidentEvent(sampleIncident(IncidentOpened, "shop", "x"))
	enqueue(t, n, event)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	var got delivered
	select {
	case got = <-s.mails: // after one retry, within firstDelay
	case <-time.After(time.Minute):
		t.Error("no e-mail within a minute")
	}
	c := settled(t, n, "mail", func(c Count) bool { return c.Delivered == 1 })
	stop()
	<-done
	if got.text == "" {
		t.Fatalf("%+v", c)
	}
	header, _ := bodies(t, got.text)
	if c.Failed != 1 || !strings.Contains(c.LastError, "bob@example.com: 550") ||
		header.Get("Message-Id") != "<"+event.ID+"@example.com>" {
		t.Errorf("%+v, Message-ID %s", c, header.Get("Message-Id"))
	}
	if w := n.Webhooks()[0]; w.Origin != "smtp://"+s.Addr().String() || w.Format != "email" {
		t.Errorf("%+v", w)
	}
}

// TestMailInterrupted interrupts a delivery to a server that accepts connections but never answers. A shutdown must
// not wait for the delivery's time limit.
func TestMailInterrupted(t *testing.T) {
	silent := listening(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		conn, err := silent.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Read(make([]byte, 1)) // the client has connected and starts to encrypt
	}()
	e := (&mailServer{Listener: silent}).endpoint("tls")
	c, err := newCaller(&e, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.mail.send(ctx, &store.Message{ID: "evt_1", Body: []byte("{}")})
	if timeout, ok := errors.AsType[net.Error](err); err == nil || ok && timeout.Timeout() {
		t.Errorf("error %v, want that of the interruption", err)
	}
}
