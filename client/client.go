// Package client queries a running service over its HTTP API, and prints the results for a terminal. Errors carry a
// hint. The methods of [Client] return text from traces unchanged; the Show functions escape it.
package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
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
type Client struct{ connection }

// New returns a client for the service at server, a URL that includes the base path of the service. If token isn't
// empty, the client sends it with each request.
func New(server, token string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--server %s: want a URL like %s", server, DefaultServer)
	}
	base := strings.TrimSuffix(u.String(), "/")
	return &Client{connection{http: http.Client{Timeout: timeout}, server: base, root: "/api/v1", token: token}}, nil
}

// Server returns the URL of the service, without a slash at the end.
func (c *Client) Server() string { return c.server }

// For returns a copy of c with the given token, which may be empty. Unless origin is empty, the copy marks its requests
// as forwarded for a client at that address. The service refuses such requests until a token exists.
func (c *Client) For(token, origin string) *Client {
	other := *c
	other.token, other.origin = token, origin
	return &other
}

// StartLogin starts the log-in of a person, who must then confirm it in a browser, possibly on another device.
func (c *Client) StartLogin(ctx context.Context) (*contract.DeviceLogin, error) {
	at := c.For("", "")
	at.root = "/login"
	return send[contract.DeviceLogin](ctx, at, http.MethodPost, nil, "device")
}

// EndLogin asks whether the person has confirmed the log-in with the given handle, and returns either the session or
// the time to wait before asking again.
func (c *Client) EndLogin(ctx context.Context, handle string) (*contract.DeviceToken, error) {
	at := c.For(handle, "")
	at.root = "/login"
	return send[contract.DeviceToken](ctx, at, http.MethodPost, nil, "device", "token")
}

// Problems returns up to `most` open problems that match q, in the order that q selects. If `most` is 0, it returns
// all.
func (c *Client) Problems(ctx context.Context, q contract.ListProblemsParams, most int) (*contract.ProblemList, error) {
	return getPages(ctx, c, q, most, func(l *contract.ProblemList) (*[]contract.Problem, *string) {
		return &l.Items, l.NextCursor
	}, "problems")
}

// longID matches the ID of a problem or of a trace.
var longID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Problem returns the problem with the given name. The name of an open problem is its rank, its ID or a prefix of the
// ID; the name of a closed problem is its ID or a prefix of it.
func (c *Client) Problem(ctx context.Context, name string) (*contract.ProblemDetail, error) {
	id := strings.ToLower(name)
	if !longID.MatchString(id) {
		var err error
		if id, err = findProblem(ctx, c, id); err != nil {
			return nil, err
		}
	}
	return Get[contract.ProblemDetail](ctx, c, nil, "problems", id)
}

// Status returns the status of the service, and the time of the response by the service's clock. The time is zero if
// the response contains none.
func (c *Client) Status(ctx context.Context) (*contract.Status, time.Time, error) {
	a, err := c.do(ctx, http.MethodGet, nil, nil, []string{"status"})
	if err != nil {
		return nil, time.Time{}, err
	}
	status, err := decode[contract.Status](c, a)
	if err != nil {
		return nil, time.Time{}, err
	}
	at, _ := http.ParseTime(a.header.Get("Date")) // zero if missing
	return status, at, nil
}

// MaxGap is the maximum time without traces before [Client.Gap] reports that traces have stopped.
const MaxGap = time.Minute

// Gap returns a sentence saying that traces have stopped arriving. It returns "" if traces are arriving, or if no trace
// has ever arrived. now is the current time, which Gap uses if the service's response contains no time.
func (c *Client) Gap(ctx context.Context, now time.Time) (string, error) {
	status, at, err := c.Status(ctx)
	if err != nil || status.Ingest.LastArrival == nil {
		return "", err
	}
	if at.IsZero() {
		at = now
	}
	last, layout := status.Ingest.LastArrival.Local(), time.TimeOnly
	if at.Sub(last) <= MaxGap {
		return "", nil
	}
	if at.Sub(last) >= 12*time.Hour {
		layout = time.DateTime
	}
	return "No traces have arrived since " + last.Format(layout) + " (" + units.Coarse(at.Sub(last)) +
		"): Sibyl cannot detect incidents. Run sibyl doctor to find out why.", nil
}

// Webhooks returns the configured webhooks and e-mail destinations with the state of their deliveries.
func (c *Client) Webhooks(ctx context.Context) ([]contract.Webhook, error) {
	list, err := Get[contract.WebhookList](ctx, c, nil, "webhooks")
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// SampleTraces returns one kept trace for each of the busiest request types, preferably a typical one. types is the
// maximum number of request types. Types without kept traces are skipped.
func (c *Client) SampleTraces(ctx context.Context, types int) ([]contract.Trace, error) {
	groups, err := Get[contract.GroupList](ctx, c, contract.ListGroupsParams{
		Level: new(contract.LevelRequestType),
		Sort:  new(contract.ListGroupsParamsSort("count")),
		Limit: &types,
	}, "groups")
	if err != nil {
		return nil, err
	}
	var traces []contract.Trace
	for i := range groups.Items {
		of := contract.ListExemplarsParams{Group: groups.Items[i].ID}
		samples, err := Get[contract.ExemplarList](ctx, c, of, "exemplars")
		if err != nil {
			return nil, err
		}
		if len(samples.Items) == 0 {
			continue
		}
		typical := slices.IndexFunc(samples.Items, func(e contract.Exemplar) bool {
			return e.Stratum == contract.ExemplarStratumTypical
		})
		trace, err := c.Trace(ctx, samples.Items[max(0, typical)].Trace)
		if err == nil { // otherwise, it may just have been deleted
			traces = append(traces, *trace)
		}
	}
	return traces, nil
}

// Tracepoints returns up to `most` tracepoints that match q, in the order that q selects. If `most` is 0, it returns
// all.
func (c *Client) Tracepoints(
	ctx context.Context, q contract.ListTracepointsParams, most int,
) (*contract.TracepointList, error) {
	return getPages(ctx, c, q, most, func(l *contract.TracepointList) (*[]contract.Tracepoint, *string) {
		return &l.Items, l.NextCursor
	}, "tracepoints")
}

// Agents returns up to `most` agents that match q. If `most` is 0, it returns all.
func (c *Client) Agents(ctx context.Context, q contract.ListAgentsParams, most int) (*contract.AgentList, error) {
	return getPages(ctx, c, q, most, func(l *contract.AgentList) (*[]contract.Agent, *string) {
		return &l.Items, l.NextCursor
	}, "agents")
}

// tracepointID matches the ID of a tracepoint.
var tracepointID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Override enables, pins or forbids the tracepoint with the given name or ID, and returns its new state.
func (c *Client) Override(
	ctx context.Context, name string, override contract.OverrideRequest,
) (*contract.Tracepoint, error) {
	id, err := findTracepoint(ctx, c, name)
	if err != nil {
		return nil, err
	}
	return send[contract.Tracepoint](ctx, c, http.MethodPut, override, "tracepoints", id)
}

// Withdraw removes the override of the tracepoint with the given name or ID.
func (c *Client) Withdraw(ctx context.Context, name string) error {
	id, err := findTracepoint(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodDelete, nil, "tracepoints", id)
}

// Steer starts or ends the search for the cause of the problem or incident with the given name; see [Client.Problem]
// and [Client.Incident].
func (c *Client) Steer(ctx context.Context, name string, r contract.SteeringRequest) (*contract.Steering, error) {
	id, err := findSubject(ctx, c, name)
	if err != nil {
		return nil, err
	}
	return send[contract.Steering](ctx, c, http.MethodPut, r, "investigations", id)
}

// WithdrawSteering withdraws a decision made with [Client.Steer], so that the service decides about the search again.
// The name has the same meaning as for Steer.
func (c *Client) WithdrawSteering(ctx context.Context, name string) error {
	id, err := findSubject(ctx, c, name)
	if err != nil {
		return err
	}
	return c.tell(ctx, http.MethodDelete, nil, "investigations", id)
}
