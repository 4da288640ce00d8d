// Package client queries a running service over its HTTP API, and prints the answers for a terminal. Errors carry a
// hint. The methods of [Client] return text from traces as it is; the Show functions escape it.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// DefaultAddress and DefaultServer are the address and the URL of a service with the default configuration.
const (
	DefaultAddress = "127.0.0.1:8321"
	DefaultServer  = "http://" + DefaultAddress
)

// Client queries one service. It is safe for concurrent use.
type Client struct {
	api      *contract.ClientWithResponses
	server   string
	hasToken bool
}

// timeout limits the duration of a request.
const timeout = 30 * time.Second

// New returns a client of the service at a URL, whose path is the base path of the service. An empty token sends none.
func New(server, token string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--server %s: want a URL like %s", server, DefaultServer)
	}
	base := strings.TrimSuffix(u.String(), "/")
	authorize := func(_ context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}
	api, err := contract.NewClientWithResponses(base+"/api/v1", contract.WithHTTPClient(&http.Client{Timeout: timeout}), contract.WithRequestEditorFn(authorize))
	if err != nil {
		return nil, err
	}
	return &Client{api: api, server: base, hasToken: token != ""}, nil
}

// response is a response of the generated client.
type response interface {
	StatusCode() int
	GetBody() []byte
}

// responseWith is a response whose body is a T.
type responseWith[T any] interface {
	response
	GetJSON200() *T
}

// check returns the error in a response, or err with a hint.
func (c *Client) check(r response, err error) error {
	switch {
	case err != nil:
		return c.withHint(err)
	case r.StatusCode() < http.StatusMultipleChoices:
		return nil
	}
	var e contract.Error
	if json.Unmarshal(r.GetBody(), &e) != nil || e.Detail == "" {
		return fmt.Errorf("%s answers %d and is not Sibyl: name the service with --server", c.server, r.StatusCode())
	}
	if e.Status == http.StatusUnauthorized {
		e.Hint = new("give a token with --token or SIBYL_TOKEN")
		if c.hasToken {
			e.Hint = new("give another one with --token or SIBYL_TOKEN")
		}
	}
	text := c.server + ": " + e.Detail
	if e.Hint != nil {
		text += "; " + *e.Hint
	}
	return &RefusedError{e.Status, text}
}

// RefusedError is the error of a request that the service refused.
type RefusedError struct {
	Status int // of HTTP
	text   string
}

func (e *RefusedError) Error() string { return e.text }

// body returns the body of a successful response, or the error of [Client.check].
func body[T any](c *Client, r responseWith[T], err error) (*T, error) {
	if err := c.check(r, err); err != nil {
		return nil, err
	}
	if x := r.GetJSON200(); x != nil {
		return x, nil
	}
	return nil, c.unexpected()
}

// unexpected returns the error for a response that does not conform to the contract.
func (c *Client) unexpected() error {
	return fmt.Errorf("unexpected response from %s: use the same version for client and service, or name another service with --server", c.server)
}

// withHint adds a hint to the error of a request without a valid response.
func (c *Client) withHint(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no service at %s: start one with sibyl serve, or name another with --server", c.server)
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return fmt.Errorf("%s did not answer within %s", c.server, timeout)
	}
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || kind {
		return c.unexpected()
	}
	if strings.Contains(err.Error(), "malformed HTTP response") { // the error has no type, and shows bytes
		return fmt.Errorf("%s does not speak HTTP: name the address of the API with --server, whose default port is 8321", c.server)
	}
	return fmt.Errorf("query %s: %w", c.server, err)
}

// pageSize is the largest page requested.
const pageSize = 1000

// readPages reads a list page by page, until it has most items (0: all) or the last page. Query requests a page; parts
// returns the place of its items, and the cursor of the next page, nil if there is none. The other fields of the list
// are those of the page read last.
func readPages[L, T any](
	c *Client, most int, query func(limit *int, cursor *string) (responseWith[L], error), parts func(*L) (items *[]T, next *string),
) (*L, error) {
	items := []T{}
	var cursor *string
	for {
		size := pageSize
		if most > 0 {
			size = min(size, most-len(items))
		}
		r, err := query(&size, cursor)
		page, err := body(c, r, err)
		if err != nil {
			return nil, err
		}
		got, next := parts(page)
		items = append(items, *got...)
		if next == nil || most > 0 && len(items) >= most {
			*got = items
			return page, nil
		}
		cursor = next
	}
}

// Problems returns up to most open problems that match q, in its order; 0: all.
func (c *Client) Problems(ctx context.Context, q contract.ListProblemsParams, most int) (*contract.ProblemList, error) {
	return readPages(c, most, func(limit *int, cursor *string) (responseWith[contract.ProblemList], error) {
		q.Limit, q.Cursor = limit, cursor
		return c.api.ListProblemsWithResponse(ctx, &q)
	}, func(l *contract.ProblemList) (*[]contract.Problem, *string) { return &l.Items, l.NextCursor })
}

// longID matches the ID of a problem or of a trace.
var longID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// minPrefix is the smallest number of digits that identify a problem. Shorter numbers are ranks.
const minPrefix = 4

// Problem returns an open problem, named by its rank, its ID, or a prefix of the ID; or a closed one, named by either
// of the latter.
func (c *Client) Problem(ctx context.Context, name string) (*contract.ProblemDetail, error) {
	id := strings.ToLower(name)
	if !longID.MatchString(id) {
		var err error
		if id, err = c.find(ctx, id); err != nil {
			return nil, err
		}
	}
	r, err := c.api.GetProblemWithResponse(ctx, id)
	return body(c, r, err)
}

// Status returns the status of the service, and its time when it answered; zero if it does not tell.
func (c *Client) Status(ctx context.Context) (*contract.Status, time.Time, error) {
	r, err := c.api.GetStatusWithResponse(ctx)
	status, err := body(c, r, err)
	if err != nil {
		return nil, time.Time{}, err
	}
	at, _ := http.ParseTime(r.HTTPResponse.Header.Get("Date")) // zero if it is missing
	return status, at, nil
}

// Silence is the time without traces from which they are missed.
const Silence = time.Minute

// Silence returns a sentence that says that no traces arrive; empty if they do, or have not begun to. now is the time
// unless the service tells its own.
func (c *Client) Silence(ctx context.Context, now time.Time) (string, error) {
	status, at, err := c.Status(ctx)
	if err != nil || status.Ingest.LastArrival == nil {
		return "", err
	}
	if at.IsZero() {
		at = now
	}
	last, layout := status.Ingest.LastArrival.Local(), time.TimeOnly
	if at.Sub(last) <= Silence {
		return "", nil
	}
	if at.Sub(last) >= 12*time.Hour {
		layout = time.DateTime
	}
	return "No traces have arrived since " + last.Format(layout) + " (" + units.Coarse(at.Sub(last)) + "): incidents cannot be noticed. sibyl doctor says what to do.", nil
}

// Webhooks returns the configured webhooks and destinations of e-mails with their deliveries.
func (c *Client) Webhooks(ctx context.Context) ([]contract.Webhook, error) {
	r, err := c.api.ListWebhooksWithResponse(ctx)
	list, err := body(c, r, err)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// SampleTraces returns a typical trace of each of the busiest request types, of at most this many.
func (c *Client) SampleTraces(ctx context.Context, types int) ([]contract.Trace, error) {
	r, err := c.api.ListGroupsWithResponse(ctx, &contract.ListGroupsParams{
		Level: new(contract.LevelRequestType), Sort: new(contract.ListGroupsParamsSort("count")), Limit: &types,
	})
	groups, err := body(c, r, err)
	if err != nil {
		return nil, err
	}
	var traces []contract.Trace
	for i := range groups.Items {
		r, err := c.api.ListExemplarsWithResponse(ctx, &contract.ListExemplarsParams{Group: groups.Items[i].ID})
		samples, err := body(c, r, err)
		if err != nil {
			return nil, err
		}
		if len(samples.Items) == 0 {
			continue
		}
		t, err := c.api.GetTraceWithResponse(ctx, samples.Items[0].Trace)
		if trace, err := body(c, t, err); err == nil { // it may just have been deleted
			traces = append(traces, *trace)
		}
	}
	return traces, nil
}

// find returns the ID of the problem with a rank or a prefix of the ID.
func (c *Client) find(ctx context.Context, name string) (string, error) {
	list, err := c.Problems(ctx, contract.ListProblemsParams{Muted: new(contract.ListProblemsParamsMutedAll)}, 0)
	if err != nil {
		return "", err
	}
	if rank, err := strconv.Atoi(name); err == nil && len(name) < minPrefix {
		for i := range list.Items {
			if list.Items[i].Rank == rank {
				return list.Items[i].ID, nil
			}
		}
	}
	found := withPrefix(list, name)
	if len(found) == 0 && len(name) >= minPrefix {
		closed, err := c.Problems(ctx, contract.ListProblemsParams{Muted: new(contract.ListProblemsParamsMutedAll), Closed: new(true)}, 0)
		if err != nil {
			return "", err
		}
		found = withPrefix(closed, name)
	}
	switch len(found) {
	case 0:
		return "", c.noProblem(ctx, name, list)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("the IDs of %d problems begin with %s: give more digits", len(found), name)
}

// noProblem returns the error for the name of a problem that is not in the list of open ones.
func (c *Client) noProblem(ctx context.Context, name string, open *contract.ProblemList) error {
	if incident, err := c.findIncident(ctx, name); err == nil && len(name) >= minPrefix {
		return fmt.Errorf("%s is an incident: sibyl incidents %s shows it", name, incident[:8])
	}
	if open.Learning && len(open.Items) == 0 {
		return fmt.Errorf("there is no problem %q: Sibyl is learning normal behaviour; sibyl problems tells how long", name)
	}
	return fmt.Errorf("there is no problem %q: sibyl problems lists them; name one by its rank or the first digits of its ID", name)
}

// withPrefix returns the IDs in a list that begin with a prefix, each once; none if the prefix is too short.
func withPrefix(list *contract.ProblemList, prefix string) (found []string) {
	for i := range list.Items {
		id := list.Items[i].ID
		if len(prefix) >= minPrefix && strings.HasPrefix(id, prefix) && !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found
}

// Tracepoints returns up to most tracepoints that match q, in its order; 0: all.
func (c *Client) Tracepoints(ctx context.Context, q contract.ListTracepointsParams, most int) (*contract.TracepointList, error) {
	return readPages(c, most, func(limit *int, cursor *string) (responseWith[contract.TracepointList], error) {
		q.Limit, q.Cursor = limit, cursor
		return c.api.ListTracepointsWithResponse(ctx, &q)
	}, func(l *contract.TracepointList) (*[]contract.Tracepoint, *string) { return &l.Items, l.NextCursor })
}

// Agents returns up to most agents that match q; 0: all.
func (c *Client) Agents(ctx context.Context, q contract.ListAgentsParams, most int) (*contract.AgentList, error) {
	return readPages(c, most, func(limit *int, cursor *string) (responseWith[contract.AgentList], error) {
		q.Limit, q.Cursor = limit, cursor
		return c.api.ListAgentsWithResponse(ctx, &q)
	}, func(l *contract.AgentList) (*[]contract.Agent, *string) { return &l.Items, l.NextCursor })
}

// tracepointID matches the ID of a tracepoint.
var tracepointID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// tracepoint returns the ID of the tracepoint with a name or ID.
func (c *Client) tracepoint(ctx context.Context, name string) (string, error) {
	if tracepointID.MatchString(name) {
		return name, nil
	}
	list, err := c.Tracepoints(ctx, contract.ListTracepointsParams{Q: &name}, 0)
	if err != nil {
		return "", err
	}
	var near []string
	for i := range list.Items {
		if list.Items[i].Name == name {
			return list.Items[i].ID, nil
		}
		near = append(near, list.Items[i].Name)
	}
	if len(near) == 1 {
		return "", fmt.Errorf("there is no tracepoint %q; did you mean %s?", name, near[0])
	}
	return "", fmt.Errorf("there is no tracepoint %q: sibyl tracepoints list shows them", name)
}

// Override enables, pins or forbids a tracepoint, given by name or ID, and returns its new state.
func (c *Client) Override(ctx context.Context, name string, override contract.OverrideRequest) (*contract.Tracepoint, error) {
	id, err := c.tracepoint(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := c.api.OverrideTracepointWithResponse(ctx, id, override)
	return body(c, r, err)
}

// Withdraw removes the override of a tracepoint, given by name or ID.
func (c *Client) Withdraw(ctx context.Context, name string) error {
	id, err := c.tracepoint(ctx, name)
	if err != nil {
		return err
	}
	r, err := c.api.WithdrawOverrideWithResponse(ctx, id)
	return c.check(r, err)
}

// DeadLetters returns up to most dead letters, oldest first; 0: all.
func (c *Client) DeadLetters(ctx context.Context, most int) (*contract.DeadLetterList, error) {
	return readPages(c, most, func(limit *int, cursor *string) (responseWith[contract.DeadLetterList], error) {
		return c.api.ListDeadLettersWithResponse(ctx, &contract.ListDeadLettersParams{Limit: limit, Cursor: cursor})
	}, func(l *contract.DeadLetterList) (*[]contract.DeadLetter, *string) { return &l.Items, l.NextCursor })
}

// DeadLetter returns the dead letter with a number.
func (c *Client) DeadLetter(ctx context.Context, number string) (*contract.DeadLetterDetail, error) {
	r, err := c.api.GetDeadLetterWithResponse(ctx, number)
	return body(c, r, err)
}

// BackUp makes the service replace its backup, and returns the directory on the machine of the service.
func (c *Client) BackUp(ctx context.Context) (directory string, err error) {
	r, err := c.api.BackUpWithResponse(ctx)
	made, err := body(c, r, err)
	if err != nil {
		return "", err
	}
	return made.Directory, nil
}

// Resend queues the dead letter with a number again.
func (c *Client) Resend(ctx context.Context, number string) error {
	r, err := c.api.ResendDeadLetterWithResponse(ctx, number)
	return c.check(r, err)
}

// Drop deletes the dead letter with a number.
func (c *Client) Drop(ctx context.Context, number string) error {
	r, err := c.api.DropDeadLetterWithResponse(ctx, number)
	return c.check(r, err)
}
