package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jaegertracing/jaeger-idl/model/v1"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/internal/gogocodec"
)

const one = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a"}}]},` +
	`"scopeSpans":[{"spans":[{"traceId":"000000000000000000000000000000%02x","spanId":"0000000000000001",` +
	`"name":"x","startTimeUnixNano":"1"}]}]}]}`

var someWindow = window{time.Unix(1_700_000_000, 1000), time.Unix(1_700_000_060, 0)}

// overWire returns the services and traces that a client finds at a server with the handler handle.
func overWire(t *testing.T, handle http.HandlerFunc, most int64) ([]string, ptrace.Traces, error) {
	t.Helper()
	server := httptest.NewServer(handle)
	defer server.Close()
	base, err := url.Parse(server.URL + "/jaeger/")
	if err != nil {
		t.Fatal(err)
	}
	s := newHTTP(base, most)
	defer s.close()
	services, err := s.services(t.Context())
	if err != nil {
		return services, ptrace.Traces{}, err
	}
	traces, err := s.find(t.Context(), "a b", someWindow, 7)
	return services, traces, err
}

// A query has the service, the window and the limits, and asks for raw traces.
func TestHTTPQuery(t *testing.T) {
	var got []string
	services, traces, err := overWire(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path+" "+strings.ReplaceAll(r.URL.RawQuery, "&", " "))
		if strings.HasSuffix(r.URL.Path, "services") {
			fmt.Fprint(w, `{"services":["a","b"]}`)
			return
		}
		fmt.Fprintf(w, `{"result":`+one+`}`, 1)
	}, 1<<20)
	want := []string{
		"GET /jaeger/api/v3/services ",
		"GET /jaeger/api/v3/traces query.num_traces=7 query.raw_traces=true query.search_depth=7 " +
			"query.service_name=a+b query.start_time_max=2023-11-14T22%3A14%3A20Z " +
			"query.start_time_min=2023-11-14T22%3A13%3A20.000001Z",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !slices.Equal(services, []string{"a", "b"}) ||
		traces.SpanCount() != 1 {
		t.Errorf("%v %v\n%s", services, err, diff)
	}
}

// Responses are decoded, whole or streamed; other answers give a helpful error.
func TestHTTPAnswers(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       int
		spans      int
		fails      string
	}{
		{"one document", fmt.Sprintf(`{"result":`+one+`}`, 1), 200, 1, ""},
		{"streamed", fmt.Sprintf(`{"result":`+one+"}\n{\"result\":"+one+`}`, 1, 2), 200, 2, ""},
		{"nothing", "", 200, 0, ""},
		{"nothing found", `{"error":{"httpCode":404,"message":"No traces found"}}`, 404, 0, ""},
		{"no such API", "404 page not found", 404, 0, "protocol grpc"},
		{"refused", `{"error":{"httpCode":400,"message":"malformed parameter"}}`, 400, 0, "malformed parameter"},
		{"broken", "nginx", 502, 0, "502"},
		{
			"fails while streaming", fmt.Sprintf(`{"result":`+one+"}\n{\"error\":{\"message\":\"storage\"}}", 1),
			200, 0, "storage",
		},
		{"torn", `{"result":{"resourceSpans":[`, 200, 0, "decode"},
		{"no JSON", "<html>", 200, 0, "decode"},
		{
			"IDs in base64", `{"result":` + strings.Replace(fmt.Sprintf(one, 1),
				"00000000000000000000000000000001", "AAAAAAAAAAAAAAAAAAAAAQ==", 1) + `}`,
			200, 0, "protocol grpc",
		},
		{"large", fmt.Sprintf(`{"result":`+one+`}`, 1) + strings.Repeat(" ", 2000), 200, 0, errLarge.Error()},
	} {
		_, traces, err := overWire(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "services") {
				fmt.Fprint(w, `{}`)
				return
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}, 1000)
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "service_name") {
				t.Errorf("%s: error %v", c.name, err)
			}
		case err != nil || (traces != ptrace.Traces{}) && traces.SpanCount() != c.spans:
			t.Errorf("%s: %v, want %d spans", c.name, err, c.spans)
		}
	}
}

// querier is the server side of api_v2.QueryService.
type querier struct {
	api_v2.UnimplementedQueryServiceServer
	query *api_v2.TraceQueryParameters
}

func (*querier) GetServices(context.Context, *api_v2.GetServicesRequest) (*api_v2.GetServicesResponse, error) {
	return &api_v2.GetServicesResponse{Services: []string{"shop"}}, nil
}

func (q *querier) FindTraces(r *api_v2.FindTracesRequest, stream api_v2.QueryService_FindTracesServer) error {
	q.query = r.Query
	for i := range uint64(5) {
		if err := stream.Send(&api_v2.SpansResponseChunk{Spans: []model.Span{
			{
				TraceID:       model.TraceID{High: 1, Low: 2},
				SpanID:        model.SpanID(i + 1),
				OperationName: "GET /",
				StartTime:     time.Unix(7, 8000),
				Duration:      time.Second,
				Process:       &model.Process{ServiceName: "shop"},
				Tags:          []model.KeyValue{model.String("span.kind", "server")},
			},
			{
				TraceID:    model.TraceID{Low: i},
				SpanID:     9,
				References: []model.SpanRef{{TraceID: model.TraceID{Low: i}, SpanID: 4}},
			},
		}}); err != nil {
			return err
		}
	}
	return nil
}

// The gRPC client works with a server built from Jaeger's definitions.
func TestGRPC(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q := &querier{}
	server := grpc.NewServer(grpc.ForceServerCodec(gogocodec.New()))
	api_v2.RegisterQueryServiceServer(server, q)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	base := &url.URL{Scheme: "http", Host: l.Addr().String()}
	s, err := newGRPC(base, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	services, err := s.services(t.Context())
	if err != nil || !slices.Equal(services, []string{"shop"}) {
		t.Errorf("%v %v", services, err)
	}
	traces, err := s.find(t.Context(), "shop", someWindow, 7)
	if err != nil {
		t.Fatal(err)
	}
	if q.query.ServiceName != "shop" || q.query.SearchDepth != 7 || !q.query.RawTraces ||
		!q.query.StartTimeMin.Equal(someWindow.from) || !q.query.StartTimeMax.Equal(someWindow.to) {
		t.Errorf("asked for %+v", q.query)
	}
	span := traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	if traces.SpanCount() != 10 || traces.ResourceSpans().Len() != 2 || span.Kind() != ptrace.SpanKindServer ||
		span.StartTimestamp() != 7_000_008_000 ||
		span.EndTimestamp() != 8_000_008_000 || span.TraceID().String() != "00000000000000010000000000000002" {
		t.Errorf("%d spans of %d resources, the first one %s %d..%d", traces.SpanCount(), traces.ResourceSpans().Len(),
			span.TraceID(), span.StartTimestamp(), span.EndTimestamp())
	}
	small, err := newGRPC(base, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer small.close()
	if _, err := small.find(t.Context(), "shop", someWindow, 7); !errors.Is(err, errLarge) {
		t.Errorf("large: %v", err)
	}
}
