// Package client asks a running service by its HTTP API, and shows the answers in a terminal. Errors say what to do. Text that came from
// traces is made fit for a terminal by whoever shows it.
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
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// DefaultServer is where a service listens that nobody configured.
const DefaultServer = "http://127.0.0.1:8321"

// Client asks one service.
type Client struct {
	api    *contract.ClientWithResponses
	server string
	token  bool // one is sent
}

// timeout ends a question that nobody answers.
const timeout = 30 * time.Second

// New returns a client of the service at a URL, which may have a path that the service is served under. Token may be empty.
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
	return &Client{api, base, token != ""}, nil
}

// answer is what the generated client returns of any answer.
type answer interface {
	StatusCode() int
	GetBody() []byte
}

// answerWith is an answer that holds something.
type answerWith[T any] interface {
	answer
	GetJSON200() *T
}

// told returns the error that an answer tells; nil for one that tells none.
func (c *Client) told(r answer, err error) error {
	switch {
	case err != nil:
		return c.unanswered(err)
	case r.StatusCode() < http.StatusMultipleChoices:
		return nil
	}
	var e contract.Error
	if json.Unmarshal(r.GetBody(), &e) != nil || e.Detail == "" {
		return fmt.Errorf("%s answers %d and is no Sibyl: name it with --server", c.server, r.StatusCode())
	}
	if e.Status == http.StatusUnauthorized {
		e.Hint = new("give a token with --token or SIBYL_TOKEN")
		if c.token {
			e.Hint = new("give another one with --token or SIBYL_TOKEN")
		}
	}
	if e.Hint == nil {
		return fmt.Errorf("%s: %s", c.server, e.Detail)
	}
	return fmt.Errorf("%s: %s; %s", c.server, e.Detail, *e.Hint)
}

// held returns what an answer holds, or the error that it tells.
func held[T any](c *Client, r answerWith[T], err error) (*T, error) {
	if err := c.told(r, err); err != nil {
		return nil, err
	}
	if x := r.GetJSON200(); x != nil {
		return x, nil
	}
	return nil, c.strange()
}

// strange says that an answer is not what it should be.
func (c *Client) strange() error {
	return fmt.Errorf("%s answers something else than this version expects: use the same version for both, or name another service with --server", c.server)
}

// unanswered says what to do where there was no answer.
func (c *Client) unanswered(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("nobody answers at %s: start it with sibyl serve, or name another with --server", c.server)
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return fmt.Errorf("%s did not answer within %s", c.server, timeout)
	}
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || kind {
		return c.strange()
	}
	return fmt.Errorf("ask %s: %w", c.server, err)
}

// pageSize is how many items are asked for at a time.
const pageSize = 1000

// pages calls read for page after page, with how many items to ask for and where to go on, until there are so many items (0: all) or no
// more. Read returns how many it got, and where to go on.
func pages(most int, read func(limit *int, cursor *string) (int, *string, error)) error {
	var cursor *string
	for n := 0; ; {
		size := pageSize
		if most > 0 {
			size = min(size, most-n)
		}
		got, next, err := read(&size, cursor)
		if err != nil {
			return err
		}
		n, cursor = n+got, next
		if next == nil || most > 0 && n >= most {
			return nil
		}
	}
}

// Problems returns the open problems that the parameters ask for, ranked, at most so many; 0: all.
func (c *Client) Problems(ctx context.Context, q contract.ListProblemsParams, most int) (*contract.ProblemList, error) {
	all := &contract.ProblemList{Items: []contract.Problem{}}
	err := pages(most, func(limit *int, cursor *string) (int, *string, error) {
		q.Limit, q.Cursor = limit, cursor
		r, err := c.api.ListProblemsWithResponse(ctx, &q)
		page, err := held(c, r, err)
		if err != nil {
			return 0, nil, err
		}
		all.Items = append(all.Items, page.Items...)
		all.NextCursor, all.Total, all.Epoch, all.Learning = page.NextCursor, page.Total, page.Epoch, page.Learning
		return len(page.Items), page.NextCursor, nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// identity is what problems are called in full.
var identity = regexp.MustCompile(`^[0-9a-f]{32}$`)

// leastPrefix is how many digits of an identity are needed at least.
const leastPrefix = 4

// Problem returns a problem, which may be named by its rank, its identity, or how that begins.
func (c *Client) Problem(ctx context.Context, name string) (*contract.ProblemDetail, error) {
	id := strings.ToLower(name)
	if !identity.MatchString(id) {
		var err error
		if id, err = c.find(ctx, id); err != nil {
			return nil, err
		}
	}
	r, err := c.api.GetProblemWithResponse(ctx, id)
	return held(c, r, err)
}

// find returns the identity of the problem with a rank, or whose identity begins so.
func (c *Client) find(ctx context.Context, name string) (string, error) {
	list, err := c.Problems(ctx, contract.ListProblemsParams{Muted: new(contract.ListProblemsParamsMutedAll)}, 0)
	if err != nil {
		return "", err
	}
	rank, notRank := strconv.Atoi(name)
	var found []string
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case notRank == nil && len(name) < leastPrefix && p.Rank == rank:
			return p.ID, nil
		case len(name) >= leastPrefix && strings.HasPrefix(p.ID, name):
			found = append(found, p.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no open problem is called %q: sibyl problems lists them, name one by its rank or the beginning of its identity", name)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d open problems begin with %s: give more digits", len(found), name)
}

// Tracepoints returns the tracepoints that the parameters ask for, at most so many; 0: all.
func (c *Client) Tracepoints(ctx context.Context, q contract.ListTracepointsParams, most int) (*contract.TracepointList, error) {
	all := &contract.TracepointList{Items: []contract.Tracepoint{}}
	err := pages(most, func(limit *int, cursor *string) (int, *string, error) {
		q.Limit, q.Cursor = limit, cursor
		r, err := c.api.ListTracepointsWithResponse(ctx, &q)
		page, err := held(c, r, err)
		if err != nil {
			return 0, nil, err
		}
		all.Items = append(all.Items, page.Items...)
		all.NextCursor, all.Epoch = page.NextCursor, page.Epoch
		return len(page.Items), page.NextCursor, nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Agents returns the agents that the parameters ask for, at most so many; 0: all.
func (c *Client) Agents(ctx context.Context, q contract.ListAgentsParams, most int) (*contract.AgentList, error) {
	all := &contract.AgentList{Items: []contract.Agent{}}
	err := pages(most, func(limit *int, cursor *string) (int, *string, error) {
		q.Limit, q.Cursor = limit, cursor
		r, err := c.api.ListAgentsWithResponse(ctx, &q)
		page, err := held(c, r, err)
		if err != nil {
			return 0, nil, err
		}
		all.Items = append(all.Items, page.Items...)
		all.NextCursor, all.Total, all.Conflicts = page.NextCursor, page.Total, page.Conflicts
		return len(page.Items), page.NextCursor, nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// tracepointID is how tracepoints are identified.
var tracepointID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// tracepoint returns the identity of the tracepoint with a name.
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
		return "", fmt.Errorf("no tracepoint is called %q; do you mean %s?", name, near[0])
	}
	return "", fmt.Errorf("no tracepoint is called %q: sibyl tracepoints list shows them", name)
}

// Override enables, pins or forbids a tracepoint, given by name or ID, and returns its new state.
func (c *Client) Override(ctx context.Context, name string, override contract.OverrideRequest) (*contract.Tracepoint, error) {
	id, err := c.tracepoint(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := c.api.OverrideTracepointWithResponse(ctx, id, override)
	return held(c, r, err)
}

// Withdraw withdraws the override of a tracepoint, given by name or ID.
func (c *Client) Withdraw(ctx context.Context, name string) error {
	id, err := c.tracepoint(ctx, name)
	if err != nil {
		return err
	}
	r, err := c.api.WithdrawOverrideWithResponse(ctx, id)
	return c.told(r, err)
}

// DeadLetters returns the events that webhooks did not take in time, oldest first, at most so many; 0: all.
func (c *Client) DeadLetters(ctx context.Context, most int) (*contract.DeadLetterList, error) {
	all := &contract.DeadLetterList{Items: []contract.DeadLetter{}}
	err := pages(most, func(limit *int, cursor *string) (int, *string, error) {
		r, err := c.api.ListDeadLettersWithResponse(ctx, &contract.ListDeadLettersParams{Limit: limit, Cursor: cursor})
		page, err := held(c, r, err)
		if err != nil {
			return 0, nil, err
		}
		all.Items, all.NextCursor = append(all.Items, page.Items...), page.NextCursor
		return len(page.Items), page.NextCursor, nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// DeadLetter returns the dead letter with a number.
func (c *Client) DeadLetter(ctx context.Context, number string) (*contract.DeadLetterDetail, error) {
	r, err := c.api.GetDeadLetterWithResponse(ctx, number)
	return held(c, r, err)
}

// Resend has the dead letter with a number sent again.
func (c *Client) Resend(ctx context.Context, number string) error {
	r, err := c.api.ResendDeadLetterWithResponse(ctx, number)
	return c.told(r, err)
}

// Drop forgets the dead letter with a number.
func (c *Client) Drop(ctx context.Context, number string) error {
	r, err := c.api.DropDeadLetterWithResponse(ctx, number)
	return c.told(r, err)
}
