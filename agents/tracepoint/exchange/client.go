package exchange

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Limits on requests and responses.
const (
	requestTimeout = 15 * time.Second // in addition to the time of a long poll
	maxRetryAfter  = 5 * time.Minute
	maxErrorBody   = 4096 // bytes
	minCompressed  = 1024 // bytes; smaller bodies are not compressed
	maxPageRounds  = 3    // rounds of sending the missing pages of a catalogue
)

var (
	errNotRegistered = errors.New("the agent is not registered")
	errIDConflict    = errors.New("another agent has the same ID")
	errInvalidPlan   = errors.New("invalid plan")
	errNoLongPolling = errors.New("the server does not support long polling")
)

// responseError is an error response. It wraps errNotRegistered or errIDConflict depending on the status code.
type responseError struct {
	code       int
	reason     string        // from the body; may be empty
	retryAfter time.Duration // 0 if not given
}

func (e *responseError) Error() string {
	return fmt.Sprintf("HTTP status %d %s: %q", e.code, http.StatusText(e.code), e.reason)
}

func (e *responseError) Unwrap() error {
	switch e.code {
	case http.StatusNotFound:
		return errNotRegistered
	case http.StatusConflict:
		return errIDConflict
	}
	return nil
}

// client is an HTTP client for the tracepoint protocol.
type client struct {
	base     string
	token    string
	http     *http.Client
	session  string
	resource map[string]string

	capabilities []protocol.Capability

	mu          sync.Mutex // guards id
	id          string
	preferredID string // as configured
}

func newClient(s *Settings) (*client, error) {
	u, err := url.Parse(s.Endpoint)
	switch {
	case s.Endpoint == "":
		return nil, errors.New("no endpoint: want a URL like http://sibyl:8321")
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("endpoint %q: must be a URL like http://sibyl:8321", s.Endpoint)
	case !validText(s.ID, protocol.MaxText/2):
		return nil, fmt.Errorf("id %q: must consist of 1 to %d bytes of printable characters", s.ID, protocol.MaxText/2)
	case !validText(s.Resource["service.name"], protocol.MaxText/2):
		return nil, fmt.Errorf("service.name %q: must be set, to 1 to %d bytes of printable characters",
			s.Resource["service.name"], protocol.MaxText/2)
	}
	resource := make(map[string]string, len(s.Resource))
	for k, v := range s.Resource { // a registration can't hold everything
		if validText(k, protocol.MaxText) && (v == "" || validText(v, protocol.MaxReason)) {
			resource[k] = v
		}
	}
	return &client{
		base:         u.JoinPath(protocol.Path).String(),
		token:        s.Token,
		http:         cmp.Or(s.Client, http.DefaultClient),
		session:      rand.Text(),
		resource:     resource,
		capabilities: s.Capabilities,
		preferredID:  s.ID,
		id:           s.ID,
	}, nil
}

// validText reports whether s consists of 1 to limit bytes of printable characters.
func validText(s string, limit int) bool {
	return s != "" && protocol.Printable(s, limit) == s
}

func (c *client) agentID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// renewID replaces the ID with the configured ID and a random suffix.
func (c *client) renewID() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = c.preferredID + "-" + rand.Text()[:8]
}

func (c *client) url(path string) string { return c.base + url.PathEscape(c.agentID()) + path }

// register sends the agent's description and the pages of its catalogue that the server lacks.
func (c *client) register(ctx context.Context, catalogue []protocol.Tracepoint) error {
	r := protocol.Registration{
		Protocol: protocol.Version, Session: c.session, Resource: c.resource,
		Capabilities: c.capabilities,
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(catalogue), Size: len(catalogue)},
	}
	if r.Catalogue.Pages() == 1 {
		r.Page = &protocol.Page{Tracepoints: catalogue}
	}
	missing, err := c.put(ctx, &r)
	for range maxPageRounds {
		if err != nil || len(missing) == 0 {
			return err
		}
		pages := missing
		for _, n := range pages {
			if n < 0 || n >= r.Catalogue.Pages() {
				return fmt.Errorf("the server requested page %d of a catalogue of %d pages", n, r.Catalogue.Pages())
			}
			from, to := r.Catalogue.Page(n)
			r.Page = &protocol.Page{Number: n, Tracepoints: catalogue[from:to]}
			if missing, err = c.put(ctx, &r); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the server still lacks %d pages of the catalogue", len(missing))
}

// put sends one registration and returns the numbers of the pages that the server lacks.
func (c *client) put(ctx context.Context, r *protocol.Registration) ([]int, error) {
	var response protocol.Registered
	err := c.send(ctx, http.MethodPut, "", r, &response)
	return response.Missing, err
}

// status sends s. It returns how long the agent should sample stacks from now on, at most maxSample.
func (c *client) status(ctx context.Context, s *protocol.Status) (sample time.Duration, err error) {
	s.Protocol, s.Session = protocol.Version, c.session
	var answer protocol.StatusAnswer
	err = c.send(ctx, http.MethodPost, protocol.StatusPath, s, &answer)
	return min(time.Duration(answer.StackSeconds)*time.Second, maxSample), err
}

// send sends body as JSON, compressed unless it is small, and decodes the body of the response, unless it is empty,
// into response.
func (c *client) send(ctx context.Context, method, path string, body, response any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	data, encoding, err := encode(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url(path), bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	got, _, err := c.do(req)
	if err != nil || len(got) == 0 {
		return err
	}
	return json.Unmarshal(got, response)
}

func encode(body any) (data []byte, encoding string, err error) {
	if data, err = json.Marshal(body); err != nil || len(data) < minCompressed {
		return data, "", err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err = z.Write(data); err == nil {
		err = z.Close()
	}
	return b.Bytes(), "gzip", err
}

// plan waits for a plan whose hash differs from the given one. It returns nil if there is no such plan within wait, and
// an error that wraps errInvalidPlan if the plan is not valid.
func (c *client) plan(ctx context.Context, hash string, wait time.Duration) (*protocol.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+requestTimeout)
	defer cancel()
	query := url.Values{"wait": {wait.String()}, "session": {c.session}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		c.url(protocol.PlanPath)+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if hash != "" {
		req.Header.Set("If-None-Match", `"`+hash+`"`)
	}
	data, code, err := c.do(req)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotModified && hash != "":
		return nil, nil //nolint:nilnil // documented above
	}
	p, err := protocol.DecodePlan(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalidPlan, err)
	}
	return p, nil
}

// do sends a request and returns the body of the response. It returns a [responseError] for an error response.
func (c *client) do(req *http.Request) (body []byte, code int, err error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if code = resp.StatusCode; code != http.StatusNotModified && code/100 != 2 {
		return nil, code, readError(resp)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, protocol.MaxBody))
	return body, code, err
}

// readError returns the error that a response reports.
func readError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return err
	}
	e := &responseError{code: resp.StatusCode}
	var p protocol.Problem
	if json.Unmarshal(data, &p) == nil {
		e.reason = p.Error
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.retryAfter = min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	return e
}
