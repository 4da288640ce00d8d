package shop

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// handle processes a request with the steps of an endpoint and returns the reply.
func (s *service) handle(ctx context.Context, do step, body []byte) ([]byte, error) {
	var q Request
	if err := json.Unmarshal(body, &q); err != nil || len(q.Items) == 0 {
		return nil, fmt.Errorf("invalid request to %s", s.name)
	}
	trace.SpanFromContext(ctx).SetAttributes(
		attribute.String("shop.currency", q.Currency), attribute.String("shop.language", q.Language),
		attribute.String("shop.tier", q.Tier), attribute.Int("shop.items", len(q.Items)))
	c := &call{ctx: ctx, request: &q, reply: []byte("{}")}
	err := do.do(c)
	return c.reply, err
}

// Limits on messages, in bytes.
const (
	maxRequest = 64 << 10
	maxReply   = 64 << 20
)

// httpServer returns the handler of the endpoints of a service that speaks HTTP.
func (s *service) httpServer() http.Handler {
	mux := http.NewServeMux()
	for name, do := range s.endpoints {
		mux.Handle(name, otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
			if err != nil {
				http.Error(w, "read the request", http.StatusBadRequest)
				return
			}
			reply, err := s.handle(r.Context(), do, body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(reply) // fails if the caller has gone
		}), name, otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(s.propagator)))
	}
	return mux
}

// grpcServer returns the server of the endpoints of a service that speaks gRPC. Messages are JSON in a BytesValue,
// which needs no generated code.
func (s *service) grpcServer() *grpc.Server {
	desc := grpc.ServiceDesc{ServiceName: s.grpcName(), HandlerType: (*any)(nil)}
	for name, do := range s.endpoints {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{
			MethodName: name,
			Handler: func(
				_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
			) (any, error) {
				var in wrapperspb.BytesValue
				if err := decode(&in); err != nil {
					return nil, err
				}
				reply, err := s.handle(ctx, do, in.GetValue())
				return wrapperspb.Bytes(reply), err
			},
		})
	}
	server := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(s.provider), otelgrpc.WithPropagators(s.propagator))))
	server.RegisterService(&desc, s)
	return server
}

func (s *service) grpcName() string { return grpcName(s.name) }

func grpcName(service string) string { return "shop." + strings.ToUpper(service[:1]) + service[1:] }

// httpClient returns the client for other services.
func (s *service) httpClient() *http.Client {
	transport := &http.Transport{
		MaxIdleConnsPerHost: connections,
		DialContext:         new(net.Dialer).DialContext,
		DisableCompression:  true,
	}
	return &http.Client{Transport: otelhttp.NewTransport(transport,
		otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(s.propagator))}
}

// httpCall is the span name of all calls over HTTP.
const httpCall = "HTTP POST"

// post returns a step that calls a path of another service over HTTP and decompresses its reply.
func (s *service) post(service, path string) step {
	called := s.callFlag(httpCall)
	return step{do: func(c *call) error {
		called.Store(true)
		body, err := json.Marshal(c.request)
		if err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
		r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://"+s.peer(service, c.request)+path,
			bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("call %s: %w", service, err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := s.client.Do(r)
		if err != nil {
			return fmt.Errorf("call %s: %w", service, err)
		}
		defer func() { _ = answer.Body.Close() }() // it was only read
		reply, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
		if err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("call %s: status %d: %w", service, answer.StatusCode, err)
		}
		return decompress(reply)
	}}
}

// decompress decompresses a reply and discards the result. It ignores uncompressed replies.
func decompress(reply []byte) error {
	if !bytes.HasPrefix(reply, []byte{0x1f, 0x8b}) {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(reply))
	if err != nil {
		return fmt.Errorf("decompress a reply: %w", err)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(r, maxReply)); err != nil {
		return fmt.Errorf("decompress a reply: %w", err)
	}
	return nil
}

// rpc returns a step that calls a method of another service over gRPC, on one of its replicas.
func (s *service) rpc(service, method string) step {
	called := s.callFlag(grpcName(service) + "/" + method)
	return step{do: func(c *call) error {
		called.Store(true)
		body, err := json.Marshal(c.request)
		if err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
		var reply wrapperspb.BytesValue
		connection := s.connections[s.peer(service, c.request)]
		err = connection.Invoke(c.ctx, "/"+grpcName(service)+"/"+method, wrapperspb.Bytes(body), &reply)
		if err != nil {
			return fmt.Errorf("call %s: %w", service, err)
		}
		return decompress(reply.GetValue())
	}}
}

// callFlag returns the flag for calls with the given span name. Executed calls count as tracepoints.
func (s *service) callFlag(span string) *atomic.Bool {
	if s.calls[span] == nil {
		s.calls[span] = new(atomic.Bool)
	}
	return s.calls[span]
}

// peer returns the address of the replica of service that receives q.
func (s *service) peer(service string, q *Request) string {
	replicas := s.peers[service]
	return replicas[int(q.chance("replica of "+service)*float64(len(replicas)))]
}

// connect opens a connection to every replica of the services that speak gRPC.
func (s *service) connect() error {
	s.client, s.connections = s.httpClient(), make(map[string]*grpc.ClientConn)
	for name, replicas := range s.peers {
		if !speaksGRPC[name] {
			continue
		}
		for _, address := range replicas {
			connection, err := grpc.NewClient("passthrough:///"+address,
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
				grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(s.provider),
					otelgrpc.WithPropagators(s.propagator))))
			if err != nil {
				return fmt.Errorf("connect to %s: %w", name, err)
			}
			s.connections[address] = connection
		}
	}
	return nil
}
