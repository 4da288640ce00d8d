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
)

// Times and sizes that a call keeps within, whatever the endpoint does.
const (
	callTimeout    = 15 * time.Second // all of it
	connectTimeout = 5 * time.Second
	mostAnswer     = 64 << 10 // bytes of an answer that are read
	shownAnswer    = 200      // bytes of an answer that are kept in errors
	mostHeaders    = 64 << 10
	mostRetryAfter = 6 * time.Hour // that an endpoint can ask for
)

// Answer is what an endpoint said.
type Answer struct {
	Status int
	Text   string // the beginning of the body, printable
	After  time.Duration
	Took   time.Duration
}

// err returns what is wrong with the answer, nil if the message was accepted.
func (a *Answer) err() error {
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
	clock    func() time.Time
}

func newCaller(e *Endpoint, clock func() time.Time) (*caller, error) {
	f, ok := formats[e.Format]
	if !ok {
		return nil, fmt.Errorf("webhook %s: there is no format %q", e.Name, e.Format)
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("webhook %s: its URL is none of http:// or https://", e.Name) // it may be a secret: it is not repeated
	}
	if path := strings.TrimSuffix(u.Path, "/"); f.path != "" && !strings.HasSuffix(path, f.path) {
		u.Path, u.RawPath = path+f.path, ""
	}
	dialer := &net.Dialer{Timeout: connectTimeout}
	if !e.AllowPrivate {
		dialer.Control = denyPrivate
	}
	transport := &http.Transport{
		Proxy:                  nil, // the address of a proxy would be checked in place of the endpoint's
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  callTimeout,
		MaxResponseHeaderBytes: mostHeaders,
		MaxConnsPerHost:        callsAtOnce,
		IdleConnTimeout:        time.Minute,
		DisableCompression:     true, // nothing unpacks to more than is read
		ForceAttemptHTTP2:      true,
	}
	client := &http.Client{
		Transport:     transport,
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &caller{*e, f, u.String(), client, clock}, nil
}

// close gives idle connections back.
func (c *caller) close() { c.client.CloseIdleConnections() }

// call sends a body. The error says that there was no answer; it does not hold the URL, whose path may be a secret.
func (c *caller) call(ctx context.Context, id string, body []byte) (*Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	start := c.clock()
	r.Header.Set("Content-Type", c.format.contentType)
	r.Header.Set("User-Agent", "sibyl")
	sign(r.Header, c.endpoint.Key, id, start, body)
	w, err := c.client.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	text, err := io.ReadAll(io.LimitReader(w.Body, mostAnswer))
	if err != nil {
		text = nil // the status says it all
	}
	_ = w.Body.Close() // it was read; what was not is of no use
	now := c.clock()
	return &Answer{
		Status: w.StatusCode, Text: clean(string(text[:min(len(text), shownAnswer)])),
		After: retryAfter(w.Header.Get("Retry-After"), now), Took: now.Sub(start),
	}, nil
}

func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// retryAfter returns how long a header asks to wait; 0 if it does not.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, mostRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, min(at.Sub(now), mostRetryAfter))
	}
	return 0
}
