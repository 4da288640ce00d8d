package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/smtp"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// mailTimeout is the time limit for one delivery. It is generous, because servers may delay each of several replies on
// purpose.
const mailTimeout = time.Minute

// mailer sends e-mails to one server.
type mailer struct {
	to     *Mail
	dialer *net.Dialer
	tls    *tls.Config
}

func newMailer(e *Endpoint, dialer *net.Dialer) (*mailer, error) {
	host, _, err := net.SplitHostPort(e.Mail.Server)
	switch {
	case err != nil:
		return nil, fmt.Errorf("e-mail %s: server: %w", e.Name, err)
	case e.Mail.Username != "" && e.Mail.Security == "none":
		return nil, fmt.Errorf("e-mail %s: a password must not be sent unencrypted", e.Name)
	case len(e.Mail.To) == 0:
		return nil, fmt.Errorf("e-mail %s: there is no recipient", e.Name)
	}
	return &mailer{to: e.Mail, dialer: dialer, tls: &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}}, nil
}

// send delivers a message to all recipients that the server accepts. It returns an error if the server accepts no
// recipient. If the server refuses only some recipients, the answer lists them. They don't cause an error, because
// another attempt would send duplicates to the others.
func (s *mailer) send(ctx context.Context, m *store.Message) (*Answer, error) {
	start := time.Now()
	text, err := s.to.compose(m)
	if err != nil {
		return nil, err
	}
	conn, err := s.dialer.DialContext(ctx, "tcp", s.to.Server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // errors that matter were returned before
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	c, err := s.begin(conn)
	if err != nil {
		return nil, err
	}
	if err := s.authenticate(c); err != nil {
		return nil, err
	}
	refused, err := s.envelope(c)
	if err != nil {
		return nil, err
	}
	w, err := c.Data()
	if err != nil {
		return nil, fmt.Errorf("DATA: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	_ = c.Quit() // the message is accepted
	return &Answer{Status: 250, Text: refused, Partly: refused != "", Took: time.Since(start)}, nil
}

// begin starts the SMTP session on conn, and encrypts it unless the configured security is none.
func (s *mailer) begin(conn net.Conn) (*smtp.Client, error) {
	if err := conn.SetDeadline(time.Now().Add(mailTimeout)); err != nil {
		return nil, err
	}
	if s.to.Security == "tls" {
		conn = tls.Client(conn, s.tls)
	}
	return s.greet(conn)
}

// greet sends EHLO to the server and, if the configured security is starttls, starts the encryption. If the server
// doesn't offer encryption, greet returns an error, because anyone on the network path could read an unencrypted
// message.
func (s *mailer) greet(conn net.Conn) (*smtp.Client, error) {
	c, err := smtp.NewClient(conn, s.tls.ServerName)
	if err != nil {
		return nil, fmt.Errorf("greeting: %w", err)
	}
	name, err := os.Hostname()
	if err != nil || strings.ContainsAny(name, "\r\n ") {
		name = "localhost"
	}
	if err := c.Hello(name); err != nil {
		return nil, fmt.Errorf("EHLO: %w", err)
	}
	if s.to.Security != "starttls" {
		return c, nil
	}
	if offered, _ := c.Extension("STARTTLS"); !offered {
		return nil, errors.New("the server does not offer STARTTLS: set security to tls or none")
	}
	if err := c.StartTLS(s.tls); err != nil {
		return nil, fmt.Errorf("STARTTLS: %w", err)
	}
	return c, nil
}

// authenticate logs in if a user name is configured. It uses the first of the mechanisms PLAIN, LOGIN and CRAM-MD5 that
// the server offers.
func (s *mailer) authenticate(c *smtp.Client) error {
	if s.to.Username == "" {
		return nil
	}
	_, offered := c.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", s.to.Username, s.to.Password, s.tls.ServerName)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = &loginAuth{s.to.Username, s.to.Password}
	case slices.Contains(mechanisms, "CRAM-MD5"):
		auth = smtp.CRAMMD5Auth(s.to.Username, s.to.Password)
	default:
		return errors.New("the server offers none of the mechanisms PLAIN, LOGIN and CRAM-MD5")
	}
	if err := c.Auth(auth); err != nil {
		return fmt.Errorf("AUTH: %w", err)
	}
	return nil
}

// envelope sends the sender and the recipients to the server. It returns the recipients that the server refused, with
// the server's reasons, or an error if the server refused all of them.
func (s *mailer) envelope(c *smtp.Client) (refused string, err error) {
	if err := c.Mail(s.to.From.Address); err != nil {
		return "", fmt.Errorf("MAIL FROM: %w", err)
	}
	var reasons []string
	for _, to := range s.to.To {
		if err := c.Rcpt(to.Address); err != nil {
			reasons = append(reasons, to.Address+": "+trace.Clean(err.Error()))
		}
	}
	refused = strings.Join(reasons, "; ")
	if len(reasons) == len(s.to.To) {
		return "", fmt.Errorf("every recipient was refused: %s", refused)
	}
	return refused, nil
}

// loginAuth implements the LOGIN mechanism, because some servers offer no other mechanism with a password. It refuses
// unencrypted connections.
type loginAuth struct{ username, password string }

// Start implements [smtp.Auth].
func (a *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errors.New("the connection is not encrypted")
	}
	return "LOGIN", nil, nil
}

// Next implements [smtp.Auth].
func (a *loginAuth) Next(from []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	switch strings.ToLower(strings.TrimSuffix(strings.TrimSpace(string(from)), ":")) {
	case "username", "user name":
		return []byte(a.username), nil
	case "password":
		return []byte(a.password), nil
	}
	return nil, errors.New("the server asks for neither a user name nor a password")
}

// ParseMail parses an address like sibyl@example.com or "Sibyl <sibyl@example.com>".
func ParseMail(text string) (mail.Address, error) {
	a, err := mail.ParseAddress(text)
	if err != nil {
		return mail.Address{}, err
	}
	return *a, nil
}
