package replay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // compresses requests
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Endpoint is the address of an OTLP receiver.
type Endpoint struct {
	url   *url.URL
	token string
}

// ParseEndpoint parses the address of an endpoint: host:port or grpc://host:port for gRPC without TLS,
// grpcs://host:port for gRPC with TLS, or a URL for OTLP/HTTP, whose default path is /v1/traces. The token is sent with
// each request unless it is empty.
func ParseEndpoint(text, token string) (*Endpoint, error) {
	if !strings.Contains(text, "://") {
		text = "grpc://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not an endpoint: %w", text, err)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Path == "" || u.Path == "/" {
			u.Path = "/v1/traces"
		}
	case "grpc", "grpcs":
		if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Path != "" {
			return nil, fmt.Errorf("%q is not an endpoint: want a host and a port, like localhost:4317", text)
		}
	default:
		return nil, fmt.Errorf("%q is not an endpoint: want host:port, grpc://…, grpcs://…, http://… or https://…", text)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not an endpoint: it lacks a host", text)
	}
	return &Endpoint{u, token}, nil
}

// connection is an open connection to an endpoint.
type connection interface {
	sender
	close() error
}

func (e *Endpoint) connect() (connection, error) {
	if strings.HasPrefix(e.url.Scheme, "http") {
		return &overHTTP{e.url.String(), e.token, &http.Client{Timeout: answerTimeout}}, nil
	}
	security := insecure.NewCredentials()
	if e.url.Scheme == "grpcs" {
		security = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	c, err := grpc.NewClient(e.url.Host, grpc.WithTransportCredentials(security), grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", e.url.Host, err)
	}
	return &overGRPC{c, ptraceotlp.NewGRPCClient(c), e.token, e.url.Scheme == "grpcs"}, nil
}

// dial connects to an address and returns the error. gRPC reports only its text.
func dial(ctx context.Context, address string) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// nobodyListens reports whether a connection failed because its host is unknown or refused it.
func nobodyListens(err error) bool {
	unknown, ok := errors.AsType[*net.DNSError](err)
	return errors.Is(err, syscall.ECONNREFUSED) || ok && unknown.IsNotFound
}

// preface begins every connection of HTTP/2 (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// speaksHTTP1 reports whether an address answers the beginning of a connection of HTTP/2 with HTTP/1, so that gRPC is
// not served there. gRPC reports only a frame that is too large.
func speaksHTTP1(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // ends a read that waits
	defer func() { _ = c.Close() }()                         // nothing is lost
	const want = "HTTP/1."
	got := make([]byte, len(want))
	if _, err := io.WriteString(c, preface); err != nil {
		return false
	}
	_, err = io.ReadFull(c, got)
	return err == nil && string(got) == want
}

// errHTTP reports an address at which HTTP is served instead of gRPC.
func errHTTP(address string) error {
	host, _, _ := net.SplitHostPort(address) // checked by ParseEndpoint
	return fmt.Errorf("%s speaks HTTP, not gRPC: Sibyl usually receives OTLP over gRPC at port 4317 (--to %s) and over HTTP at port 4318 (--to http://%s)",
		address, net.JoinHostPort(host, "4317"), net.JoinHostPort(host, "4318"))
}

func errNobody(address string) error {
	return fmt.Errorf("nothing listens at %s: start sibyl serve first, or name another endpoint with --to", address)
}

// answerTimeout is the timeout of a request.
const answerTimeout = 30 * time.Second

type overGRPC struct {
	connection *grpc.ClientConn
	client     ptraceotlp.GRPCClient
	token      string
	tls        bool
}

func (g *overGRPC) close() error { return g.connection.Close() }

// send implements sender.
func (g *overGRPC) send(ctx context.Context, traces ptrace.Traces) (answer, error) {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if g.token != "" {
		call = metadata.AppendToOutgoingContext(call, "authorization", "Bearer "+g.token)
	}
	response, err := g.client.Export(call, ptraceotlp.NewExportRequestFromTraces(traces))
	if err == nil {
		return partial(response), nil
	}
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	s := status.Convert(err)
	after, throttled := retryDelay(s)
	switch code := s.Code(); {
	case code == codes.Unavailable && nobodyListens(dial(ctx, g.connection.Target())):
		return answer{}, &retryError{err: errNobody(g.connection.Target()), wrong: true}
	case code == codes.Unavailable && !g.tls && speaksHTTP1(ctx, g.connection.Target()):
		return answer{}, &retryError{err: errHTTP(g.connection.Target()), wrong: true}
	case slices.Contains(retryable, code), code == codes.ResourceExhausted && throttled:
		return answer{}, &retryError{err: err, after: after}
	case code == codes.ResourceExhausted, code == codes.InvalidArgument:
		return answer{int64(traces.SpanCount()), s.Message()}, nil
	}
	return answer{}, fmt.Errorf("send to %s: %w", g.connection.Target(), err)
}

// retryable are the status codes that permit a retry by the OTLP specification.
var retryable = []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss}

func retryDelay(s *status.Status) (time.Duration, bool) {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

func partial(r ptraceotlp.ExportResponse) answer {
	return answer{r.PartialSuccess().RejectedSpans(), r.PartialSuccess().ErrorMessage()}
}

type overHTTP struct {
	url, token string
	client     *http.Client
}

func (h *overHTTP) close() error {
	h.client.CloseIdleConnections()
	return nil
}

// maxAnswer bounds the size of a response in bytes.
const maxAnswer = 64 << 10

// send implements sender.
func (h *overHTTP) send(ctx context.Context, traces ptrace.Traces) (answer, error) {
	body, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	if err != nil {
		return answer{}, fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("create a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if h.token != "" {
		request.Header.Set("Authorization", "Bearer "+h.token)
	}
	response, err := h.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		if nobodyListens(err) {
			return answer{}, &retryError{err: errNobody(request.URL.Host), wrong: true}
		}
		return answer{}, &retryError{err: err}
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return answer{}, &retryError{err: err}
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		r := ptraceotlp.NewExportResponse()
		if err := r.UnmarshalProto(text); err != nil {
			return answer{}, fmt.Errorf("%s does not answer with OTLP: %w", h.url, err)
		}
		return partial(r), nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 for a date or no header
		return answer{}, &retryError{err: fmt.Errorf("%s answers %s", h.url, response.Status), after: time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return answer{int64(traces.SpanCount()), response.Status}, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return answer{}, fmt.Errorf("%s answers %s: name the address that receives OTLP over HTTP, whose default port is 4318", h.url, response.Status)
	}
	return answer{}, fmt.Errorf("%s answers %s", h.url, response.Status)
}
