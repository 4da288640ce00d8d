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

// Endpoint is the address of an OTLP receiver, with a token for it.
type Endpoint struct {
	url   *url.URL
	token string
}

// ParseEndpoint parses text as the address of an endpoint: host:port or grpc://host:port for gRPC without TLS,
// grpcs://host:port for gRPC with TLS, or a URL for OTLP/HTTP, whose default path is /v1/traces. If token isn't empty,
// it is sent with each request.
func ParseEndpoint(text, token string) (*Endpoint, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "grpc://" + text
	}
	u, err := url.Parse(full)
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
		return nil, fmt.Errorf("%q is not an endpoint: want host:port, grpc://…, grpcs://…, http://… or https://…",
			text)
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
		return &overHTTP{endpoint: e, client: &http.Client{Timeout: answerTimeout}}, nil
	}
	security := insecure.NewCredentials()
	if e.url.Scheme == "grpcs" {
		security = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	c, err := grpc.NewClient(e.url.Host, grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", e.url.Host, err)
	}
	return &overGRPC{e, c, ptraceotlp.NewGRPCClient(c)}, nil
}

// answerTimeout is the timeout of a request.
const answerTimeout = 30 * time.Second

type overGRPC struct {
	endpoint   *Endpoint
	connection *grpc.ClientConn
	client     ptraceotlp.GRPCClient
}

func (g *overGRPC) close() error { return g.connection.Close() }

// send implements sender.
func (g *overGRPC) send(ctx context.Context, traces ptrace.Traces) (answer, error) {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if g.endpoint.token != "" {
		call = metadata.AppendToOutgoingContext(call, "authorization", "Bearer "+g.endpoint.token)
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
	if s.Code() == codes.Unavailable {
		if wrong := g.endpoint.wrong(ctx); wrong != nil {
			return answer{}, &retryError{err: wrong, wrong: true}
		}
	}
	switch code := s.Code(); {
	case slices.Contains(retryable, code), code == codes.ResourceExhausted && throttled:
		return answer{}, &retryError{err: err, after: after}
	case code == codes.ResourceExhausted, code == codes.InvalidArgument:
		return answer{int64(traces.SpanCount()), s.Message()}, nil
	}
	return answer{}, fmt.Errorf("send to %s: %w", g.connection.Target(), err)
}

// retryable lists the status codes after which the OTLP specification permits a retry.
var retryable = []codes.Code{
	codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable,
	codes.DataLoss,
}

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
	endpoint *Endpoint
	client   *http.Client
}

func (h *overHTTP) close() error {
	h.client.CloseIdleConnections()
	return nil
}

// maxAnswer limits the part of a response that is read, in bytes.
const maxAnswer = 64 << 10

// send implements sender.
func (h *overHTTP) send(ctx context.Context, traces ptrace.Traces) (answer, error) {
	url := h.endpoint.url.String()
	body, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	if err != nil {
		return answer{}, fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("create a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if h.endpoint.token != "" {
		request.Header.Set("Authorization", "Bearer "+h.endpoint.token)
	}
	got, err := h.do(request)
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		if wrong := h.endpoint.wrong(ctx); wrong != nil {
			return answer{}, &retryError{err: wrong, wrong: true}
		}
		return answer{}, &retryError{err: err}
	}
	switch got.code {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		r := ptraceotlp.NewExportResponse()
		if err := r.UnmarshalProto(got.text); err != nil {
			return answer{}, fmt.Errorf("%s does not answer with OTLP: %w", url, err)
		}
		return partial(r), nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(got.retryAfter) // 0 for a date or no header
		return answer{}, &retryError{
			err:   fmt.Errorf("%s answers %s", url, got.status),
			after: time.Duration(min(max(seconds, 0), 3600)) * time.Second,
		}
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		if request.URL.Scheme == "http" { // a typical answer of a server with TLS
			if _, err := encrypted(ctx, h.endpoint.address()); err == nil {
				return answer{}, h.endpoint.errTLS()
			}
		}
		return answer{int64(traces.SpanCount()), got.status}, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType: // gRPC sends the last
		return answer{}, fmt.Errorf(
			"%s answers %s: name the address that receives OTLP over HTTP, whose default port is 4318", url, got.status)
	}
	return answer{}, fmt.Errorf("%s answers %s", url, got.status)
}

// reply is an HTTP response with the start of its body.
type reply struct {
	code               int
	status, retryAfter string
	text               []byte
}

// do sends request and reads the response, up to maxAnswer bytes of its body.
func (h *overHTTP) do(request *http.Request) (reply, error) {
	response, err := h.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return reply{response.StatusCode, response.Status, response.Header.Get("Retry-After"), text},
		errors.Join(err, response.Body.Close())
}
