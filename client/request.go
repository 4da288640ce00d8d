package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// connection sends requests to one service.
type connection struct {
	http   http.Client
	server string // its URL, without a slash at the end
	root   string // prefix of the paths of requests, below the URL
	token  string // may be empty
	origin string // address of the client that requests are forwarded for, or empty
}

// timeout limits the duration of a request.
const timeout = 30 * time.Second

// Get sends a GET request for a path below /api/v1, given by its unescaped elements, and returns the decoded response.
// query is nil or one of the contract's parameter structs. The error is a [RefusedError] if the service refuses the
// request.
func Get[T any](ctx context.Context, c *Client, query any, path ...string) (*T, error) {
	return get[T](ctx, c, values(query), path)
}

func get[T any](ctx context.Context, c *Client, query url.Values, path []string) (*T, error) {
	a, err := c.do(ctx, http.MethodGet, query, nil, path)
	if err != nil {
		return nil, err
	}
	return decode[T](c, a)
}

// send sends body as JSON, or no body if body is nil, and returns the decoded response.
func send[T any](ctx context.Context, c *Client, method string, body any, path ...string) (*T, error) {
	a, err := c.do(ctx, method, nil, body, path)
	if err != nil {
		return nil, err
	}
	return decode[T](c, a)
}

// tell is like send, but ignores the body of the response.
func (c *connection) tell(ctx context.Context, method string, body any, path ...string) error {
	_, err := c.do(ctx, method, nil, body, path)
	return err
}

// answer is a successful response of the service.
type answer struct {
	header http.Header
	body   []byte
}

// decode decodes the JSON in a response. Its errors hint that the versions of client and service may differ.
func decode[T any](c *Client, a answer) (*T, error) {
	x := new(T)
	if json.Unmarshal(a.body, x) != nil {
		return nil, fmt.Errorf("unexpected response from %s: use the same version for client and service, "+
			"or name another service with --server", c.server)
	}
	return x, nil
}

// do sends a request and returns the response, or the service's refusal as a [RefusedError].
func (c *connection) do(ctx context.Context, method string, query url.Values, body any, path []string) (answer, error) {
	r, err := c.request(ctx, method, query, body, path)
	if err != nil {
		return answer{}, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, c.withHint(err)
	}
	defer func() { _ = response.Body.Close() }() // only read, so errors don't matter
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, c.withHint(err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return answer{}, c.refused(response.StatusCode, data)
	}
	return answer{response.Header, data}, nil
}

// request returns a request to the service, with the token if there is one.
func (c *connection) request(
	ctx context.Context, method string, query url.Values, body any, path []string,
) (*http.Request, error) {
	to := c.server + c.root
	if len(path) > 0 {
		escaped := make([]string, len(path))
		for i, element := range path {
			escaped[i] = url.PathEscape(element)
		}
		to += "/" + strings.Join(escaped, "/")
	}
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.origin != "" {
		r.Header.Set("Forwarded", fmt.Sprintf("for=%q", c.origin))
	}
	return r, nil
}

// values returns parameters, which must be nil or one of the contract's parameter structs, as a query. The names come
// from the form tags. Nil fields are omitted.
func values(parameters any) url.Values {
	q := url.Values{}
	if parameters == nil {
		return q
	}
	for field, x := range reflect.ValueOf(parameters).Fields() {
		if x.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		}
		name, _, _ := strings.Cut(field.Tag.Get("form"), ",")
		if several, ok := reflect.TypeAssert[[]string](x); ok {
			q[name] = several
			continue
		}
		q.Set(name, fmt.Sprint(x.Interface()))
	}
	return q
}

// RefusedError is the error for a request that the service refused.
type RefusedError struct {
	Status       int    // of HTTP
	Detail, Hint string // from the service; Hint may be empty
	text         string // with a hint for users of the command line
}

func (e *RefusedError) Error() string { return e.text }

// refused returns the error for an unsuccessful response: a [RefusedError], or another error if the response isn't from
// Sibyl.
func (c *connection) refused(status int, body []byte) error {
	var e contract.Error
	if json.Unmarshal(body, &e) != nil || e.Detail == "" {
		return fmt.Errorf("%s answers %d and is not Sibyl: name the service with --server", c.server, status)
	}
	refused := &RefusedError{Status: e.Status, Detail: e.Detail}
	if e.Hint != nil {
		refused.Hint = *e.Hint
	}
	hint := refused.Hint
	if e.Status == http.StatusUnauthorized {
		hint = "give a token with --token or SIBYL_TOKEN"
		if c.token != "" {
			hint = "give another one with --token or SIBYL_TOKEN"
		}
		if e.Login != nil {
			hint = "run sibyl login --server " + c.server + ", or " + hint
		}
	}
	refused.text = c.server + ": " + e.Detail
	if hint != "" {
		refused.text += "; " + hint
	}
	return refused
}

// withHint adds a hint to err, the error from a request that got no valid response.
func (c *connection) withHint(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no service at %s: start one with sibyl serve, or name another with --server", c.server)
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return fmt.Errorf("%s did not answer within %s", c.server, timeout)
	}
	// Most of these errors have no type. The first contains raw bytes; the others are for a server that speaks before
	// it is asked: net/http then closes the connection, perhaps while it writes the request.
	if text := err.Error(); strings.Contains(text, "malformed HTTP response") ||
		strings.Contains(text, "readLoopPeekFail") || errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%s does not speak HTTP: name the address "+
			"of the API with --server, whose default port is 8321",
			c.server)
	}
	return fmt.Errorf("query %s: %w", c.server, err)
}

// pageSize is the maximum number of items requested in one page.
const pageSize = 1000

// getPages reads a list page by page, until it has read `most` items, or all items if `most` is 0. parts returns
// pointers to the items of a page, and the cursor of the next page, or nil after the last page. The other fields of the
// result are taken from the last page read.
func getPages[L, T any](
	ctx context.Context, c *Client, query any, most int, parts func(*L) (items *[]T, next *string), path ...string,
) (*L, error) {
	items, q := []T{}, values(query)
	for {
		size := pageSize
		if most > 0 {
			size = min(size, most-len(items))
		}
		q.Set("limit", strconv.Itoa(size))
		list, err := get[L](ctx, c, q, path)
		if err != nil {
			return nil, err
		}
		got, next := parts(list)
		items = append(items, *got...)
		if next == nil || most > 0 && len(items) >= most {
			*got = items
			return list, nil
		}
		q.Set("cursor", *next)
	}
}
