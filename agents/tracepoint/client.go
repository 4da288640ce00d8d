package tracepoint

import (
	"bytes"
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

// Limits of requests.
const (
	slack        = 15 * time.Second // beyond the time that an answer is to take, until it is given up
	longestRetry = 5 * time.Minute  // that a server's Retry-After is believed
	maxMessage   = 4096             // bytes that are read of an error
	compressFrom = 1024             // bytes
	maxRounds    = 3                // of sending what the server says is missing
)

var (
	errUnknown = errors.New("Sibyl does not know the agent") //nolint:staticcheck // a name
	errTaken   = errors.New("the agent's id is another's")
	errPlan    = errors.New("the plan cannot be applied")
	errHasty   = errors.New("the server does not wait for a change")
)

// refusedError is an answer that refuses. It wraps errUnknown or errTaken if that is what it says.
type refusedError struct {
	code  int
	why   string        // what the server says; may be empty
	retry time.Duration // after which to try again; 0: the server does not say
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("refused with %d %s: %q", e.code, http.StatusText(e.code), e.why)
}

func (e *refusedError) Unwrap() error {
	switch e.code {
	case http.StatusNotFound:
		return errUnknown
	case http.StatusConflict:
		return errTaken
	}
	return nil
}

// client speaks the tracepoint protocol over HTTP.
type client struct {
	base     string
	token    string
	http     *http.Client
	session  string
	resource map[string]string

	mu    sync.Mutex // guards what follows
	first string     // id as it was asked for
	id    string
}

func newClient(o *options) (*client, error) {
	u, err := url.Parse(o.endpoint)
	switch {
	case o.endpoint == "":
		return nil, errors.New("no endpoint: use WithEndpoint")
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("endpoint %q: must be like http://sibyl:8321", o.endpoint)
	case !validText(o.id, protocol.MaxText/2):
		return nil, fmt.Errorf("id %q: must be a printable text of 1 to %d bytes", o.id, protocol.MaxText/2)
	case !validText(o.resource["service.name"], protocol.MaxText/2):
		return nil, fmt.Errorf("service.name %q: must be a printable text of 1 to %d bytes: use WithService", o.resource["service.name"], protocol.MaxText/2)
	}
	for k, v := range o.resource { // what the protocol has no place for is left out
		if !validText(k, protocol.MaxText) || v != "" && !validText(v, protocol.MaxReason) {
			delete(o.resource, k)
		}
	}
	return &client{
		base: u.JoinPath(protocol.Path).String(), token: o.token, http: o.client, session: rand.Text(), resource: o.resource, first: o.id, id: o.id,
	}, nil
}

func (c *client) service() string { return c.resource["service.name"] }

func (c *client) identity() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// rename takes an id that nobody else has.
func (c *client) rename() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = c.first + "-" + rand.Text()[:8]
}

func (c *client) url(path string) string { return c.base + url.PathEscape(c.identity()) + path }

// register sends who the agent is, and the pages of its catalogue that the server lacks.
func (c *client) register(ctx context.Context, catalogue []protocol.Tracepoint, explore bool) error {
	r := protocol.Registration{
		Protocol: protocol.Version, Session: c.session, Resource: c.resource,
		Capabilities: []protocol.Capability{protocol.CanSpan, protocol.CanVariable, protocol.CanRate, protocol.CanFilter},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(catalogue), Size: len(catalogue)},
	}
	if explore {
		r.Capabilities = append(r.Capabilities, protocol.CanExplore)
	}
	if r.Catalogue.Pages() == 1 {
		r.Page = &protocol.Page{Tracepoints: catalogue}
	}
	missing, err := c.put(ctx, &r)
	for range maxRounds {
		if err != nil || len(missing) == 0 {
			return err
		}
		wanted := missing
		for _, n := range wanted {
			if n < 0 || n >= r.Catalogue.Pages() {
				return fmt.Errorf("the server misses page %d of %d", n, r.Catalogue.Pages())
			}
			from, to := r.Catalogue.Page(n)
			r.Page = &protocol.Page{Number: n, Tracepoints: catalogue[from:to]}
			if missing, err = c.put(ctx, &r); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the server still misses %d pages of the catalogue", len(missing))
}

// put sends one registration, and returns which pages are missing.
func (c *client) put(ctx context.Context, r *protocol.Registration) ([]int, error) {
	var answer protocol.Registered
	err := c.send(ctx, http.MethodPut, "", r, &answer)
	return answer.Missing, err
}

func (c *client) status(ctx context.Context, s *protocol.Status) error {
	s.Protocol, s.Session = protocol.Version, c.session
	return c.send(ctx, http.MethodPost, protocol.StatusPath, s, nil)
}

// send sends body as JSON, compressed unless it is small, and decodes the answer into answer unless that is nil.
func (c *client) send(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, slack)
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
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(got, answer)
}

func encode(body any) (data []byte, encoding string, err error) {
	if data, err = json.Marshal(body); err != nil || len(data) < compressFrom {
		return data, "", err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err = z.Write(data); err == nil {
		err = z.Close()
	}
	return b.Bytes(), "gzip", err
}

// plan waits for a plan that has not the given hash. It returns nil if there is none after the given time.
func (c *client) plan(ctx context.Context, hash string, wait time.Duration) (*protocol.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+slack)
	defer cancel()
	query := url.Values{"wait": {wait.String()}, "session": {c.session}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(protocol.PlanPath)+"?"+query.Encode(), http.NoBody)
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
		return nil, nil //nolint:nilnil // said above
	}
	p, err := protocol.DecodePlan(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPlan, err)
	}
	return p, nil
}

// do sends a request and returns the body of the answer, unless that refuses.
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
		return nil, code, refusal(resp)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, protocol.MaxBody))
	return body, code, err
}

func refusal(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil {
		return err
	}
	e := &refusedError{code: resp.StatusCode}
	var p protocol.Problem
	if json.Unmarshal(data, &p) == nil {
		e.why = p.Error
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.retry = min(time.Duration(n)*time.Second, longestRetry)
	}
	return e
}
