package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on a call, whatever the endpoint does.
const (
	callTimeout    = 15 * time.Second // of the whole call
	connectTimeout = 5 * time.Second
	maxAnswer      = 64 << 10 // bytes read from an answer
	shownAnswer    = 200      // bytes of an answer in errors
	maxHeaders     = 64 << 10
	maxRetryAfter  = 6 * time.Hour // longest wait that an endpoint can request
)

// Answer is the response of an endpoint.
type Answer struct {
	Status int
	Text   string        // start of the body, printable; for a mail server, the recipients that it refused
	Partly bool          // a mail server refused some of the recipients
	After  time.Duration // from the Retry-After header; 0 if absent
	Took   time.Duration // duration of the call
}

// Err returns the reason why the endpoint rejected the event, or nil if it accepted it.
func (a *Answer) Err() error {
	if a.Status >= 200 && a.Status < 300 {
		return nil
	}
	text := strconv.Itoa(a.Status)
	if name := http.StatusText(a.Status); name != "" {
		text += " " + name
	}
	if a.Status >= 300 && a.Status < 400 {
		text += ": redirects are not followed"
	}
	if a.Text != "" {
		text += ": " + a.Text
	}
	return errors.New(text)
}

// caller calls one endpoint.
type caller struct {
	endpoint Endpoint
	format   format
	url      string
	client   *http.Client
	mail     *mailer // set for e-mail; otherwise calls go to url
	clock    func() time.Time
}

func newCaller(e *Endpoint, clock func() time.Time) (*caller, error) {
	f, ok := formats[e.Format]
	if !ok {
		return nil, fmt.Errorf("webhook %s: there is no format %q", e.Name, e.Format)
	}
	if f.authorize != nil && e.Token == "" {
		return nil, fmt.Errorf("webhook %s: format %s needs a token", e.Name, e.Format)
	}
	if e.Buttons {
		f.body = slackInteractive
	}
	dialer := &net.Dialer{Timeout: connectTimeout}
	if !e.AllowPrivate {
		dialer.Control = denyPrivate
	}
	if e.Mail != nil {
		m, err := newMailer(e, dialer)
		return &caller{
			endpoint: *e,
			format:   f,
			client:   &http.Client{},
			mail:     m,
			clock:    clock,
		}, err
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		// without the URL, which may be a secret
		return nil, fmt.Errorf("webhook %s: its URL does not begin with http:// or https://", e.Name)
	}
	if path := strings.TrimSuffix(u.Path, "/"); f.path != "" && !strings.HasSuffix(path, f.path) {
		u.Path, u.RawPath = path+f.path, ""
	}
	transport := &http.Transport{
		Proxy:                  nil, // denyPrivate would check the address of the proxy
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  callTimeout,
		MaxResponseHeaderBytes: maxHeaders,
		MaxConnsPerHost:        callsAtOnce,
		IdleConnTimeout:        time.Minute,
		DisableCompression:     true, // so that maxAnswer bounds the answer
		ForceAttemptHTTP2:      true,
	}
	client := &http.Client{
		Transport:     transport,
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &caller{
		endpoint: *e,
		format:   f,
		url:      u.String(),
		client:   client,
		clock:    clock,
	}, nil
}

// close closes idle connections.
func (c *caller) close() { c.client.CloseIdleConnections() }

// call sends a message and returns the answer, which may be a rejection. It returns an error if there is no answer. The
// error doesn't contain the URL, because the path may be a secret.
func (c *caller) call(ctx context.Context, m *store.Message) (*Answer, error) {
	if c.mail != nil {
		return c.mail.send(ctx, m)
	}
	start := c.clock()
	r, err := c.request(ctx, m, start)
	if err != nil {
		return nil, withoutURL(err)
	}
	w, err := c.client.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	text, err := io.ReadAll(io.LimitReader(w.Body, maxAnswer))
	if err != nil {
		text = nil // the status suffices
	}
	_ = w.Body.Close() // the rest of the body isn't needed
	now := c.clock()
	return &Answer{
		Status: w.StatusCode, Text: trace.Clean(string(text[:min(len(text), shownAnswer)])),
		After: retryAfter(w.Header.Get("Retry-After"), now), Took: now.Sub(start),
	}, nil
}

// request returns the request that sends a message. It adds the endpoint's token, which stored messages don't contain.
func (c *caller) request(ctx context.Context, m *store.Message, now time.Time) (*http.Request, error) {
	to, err := url.Parse(c.url)
	if err != nil {
		return nil, err
	}
	body, header := m.Body, make(http.Header)
	if c.format.target != nil {
		path, query := c.format.target(Type(m.Event), m.Subject, body)
		to.Path += path
		if query != "" {
			to.RawQuery = query
		}
	}
	if c.format.authorize != nil {
		body = c.format.authorize(header, c.endpoint.Token, body)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	header.Set("Content-Type", c.format.contentType)
	header.Set("User-Agent", "sibyl")
	sign(header, c.endpoint.Key, m.ID, now, body)
	r.Header = header
	return r, nil
}

// withoutURL returns err without the URL that the HTTP client adds to its errors.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// retryAfter returns the wait that a Retry-After header requests, up to maxRetryAfter, or 0 if the header contains no
// valid time or a time in the past.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, min(at.Sub(now), maxRetryAfter))
	}
	return 0
}
