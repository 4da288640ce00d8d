package sampling

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"go.opentelemetry.io/contrib/samplers/jaegerremote"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/gogocodec"
	"github.com/sibyl-trace/sibyl/trace"
)

var sampleRates = &Rates{Default: 0.25, Services: map[string][]Operation{"shop": {{"GET /cart", 1}, {"GET /never", 0}}}}

func TestHTTP(t *testing.T) {
	s := NewStrategies(sampleRates)
	for _, c := range []struct {
		method, target string
		status         int
		body           string
	}{
		{
			"GET", "/sampling?service=shop", 200,
			`{"strategyType":"PROBABILISTIC","probabilisticSampling":{"samplingRate":0.25},"operationSampling":{` +
				`"defaultSamplingProbability":0.25,"defaultLowerBoundTracesPerSecond":0.016666666666666666,` +
				`"perOperationStrategies":[{"operation":"GET /cart","probabilisticSampling":{"samplingRate":1}},` +
				`{"operation":"GET /never","probabilisticSampling":{"samplingRate":0}}]}}`,
		},
		{
			"GET",
			"/sampling?service=other&x=1",
			200,
			`"perOperationStrategies":[{"operation":"sibyl.no.operation","probabilisticSampling":{"samplingRate":0.25}}]`,
		},
		{"GET", "/sampling", 400, "want exactly one"},
		{"GET", "/sampling?service=", 400, "want exactly one"},
		{"GET", "/sampling?service=a&service=b", 400, "want exactly one"},
		{"GET", "/sampling?service=" + strings.Repeat("a", 2000), 400, "want exactly one"},
		{"POST", "/sampling?service=shop", 405, "only GET"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(c.method, c.target, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) ||
			strings.Contains(w.Body.String(), "null") {
			t.Errorf("%s %.40s: %d %s", c.method, c.target, w.Code, w.Body)
		}
	}
}

// The remote sampler of OpenTelemetry for Go follows the published rates.
func TestSDK(t *testing.T) {
	s := NewStrategies(sampleRates)
	server := httptest.NewServer(s)
	defer server.Close()
	sampler := jaegerremote.New("shop", jaegerremote.WithSamplingServerURL(server.URL+"/sampling"),
		jaegerremote.WithInitialSampler(sdk.NeverSample()),
		jaegerremote.WithSamplingRefreshInterval(time.Hour))
	defer sampler.Close()
	sampler.UpdateSampler()
	if n := sampled(sampler, "GET /cart", 1000); n != 1000 {
		t.Errorf("traced %d of 1000 requests under investigation, want all", n)
	}
	if n := sampled(sampler, "GET /never", 1000); n > 1 { // the lower bound allows one
		t.Errorf("traced %d of 1000 requests with rate 0, want at most 1", n)
	}
	if n := sampled(sampler, "GET /other", 1000); n < 180 || n > 320 {
		t.Errorf("traced %d of 1000 other requests, want about 250", n)
	}
	s.Publish(&Rates{Default: 0.25})
	for attempts := 1; ; attempts++ {
		sampler.UpdateSampler()
		n := sampled(sampler, "GET /cart", 1000)
		if n >= 180 && n <= 320 {
			break
		}
		if attempts == 10 { // the sampler's own first update may end late and undo ours
			t.Fatalf("traced %d of 1000 requests after the investigation, want about 250", n)
		}
	}
}

// sampled returns how many of n requests for operation s samples.
func sampled(s sdk.Sampler, operation string, n int) int {
	count := 0
	for i := range n {
		var id oteltrace.TraceID
		binary.BigEndian.PutUint64(id[8:], trace.Mix(uint64(i), 1))
		id[0] = 1
		root := sdk.SamplingParameters{ParentContext: context.Background(), TraceID: id, Name: operation}
		if s.ShouldSample(root).Decision == sdk.RecordAndSample {
			count++
		}
	}
	return count
}

func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewStrategies(sampleRates).NewGRPC()
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(gogocodec.New())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := api_v2.NewSamplingManagerClient(conn)
	got, err := client.GetSamplingStrategy(t.Context(), &api_v2.SamplingStrategyParameters{ServiceName: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	list := got.OperationSampling.PerOperationStrategies
	if len(list) != 2 || list[0].Operation != "GET /cart" || list[0].ProbabilisticSampling.SamplingRate != 1 {
		t.Errorf("%v", got)
	}
	o := got.OperationSampling
	if o.DefaultSamplingProbability != 0.25 || o.DefaultLowerBoundTracesPerSecond != lowerBound ||
		got.ProbabilisticSampling.SamplingRate != 0.25 {
		t.Errorf("%v", got)
	}
	other, err := client.GetSamplingStrategy(t.Context(), &api_v2.SamplingStrategyParameters{ServiceName: "other"})
	if err != nil || len(other.OperationSampling.PerOperationStrategies) != 1 {
		t.Errorf("%v, %v", other, err)
	}
	nameless := &api_v2.SamplingStrategyParameters{}
	if _, err := client.GetSamplingStrategy(t.Context(), nameless); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a service: %v", err)
	}
}

func TestCodecRejects(t *testing.T) {
	if _, err := gogocodec.New().Marshal(1); err == nil {
		t.Error("Marshal accepted a number")
	}
	if err := gogocodec.New().Unmarshal(nil, io.Discard); err == nil {
		t.Error("Unmarshal accepted another type")
	}
	if err := gogocodec.New().Unmarshal([]byte{0xff}, &api_v2.SamplingStrategyParameters{}); err == nil {
		t.Error("Unmarshal accepted garbage")
	}
}

func TestRatesOf(t *testing.T) {
	table := &trace.Table{}
	op := func(service, name string) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), trace.Server)
	}
	cart, pay, list, idle := op("shop", "GET /cart"), op("shop", "POST /pay"), op("store",
		"GET /list"), op("store", "GET /idle")
	o := Options{Default: 0.01, Budget: 30}
	seen := map[trace.Op]float64{cart: 1, pay: 0.05, list: 10}
	for name, c := range map[string]struct {
		entries []trace.Op
		before  *Rates
		want    map[string][]Operation
	}{
		"nothing":       {nil, nil, map[string][]Operation{}},
		"one":           {[]trace.Op{cart, cart}, nil, map[string][]Operation{"shop": {{"GET /cart", 0.1}}}},
		"few requests":  {[]trace.Op{pay}, nil, map[string][]Operation{"shop": {{"POST /pay", 1}}}},
		"unknown":       {[]trace.Op{idle}, nil, map[string][]Operation{}},
		"many requests": {[]trace.Op{list}, nil, map[string][]Operation{}}, // the default rate suffices
		"all, by name": {
			[]trace.Op{pay, cart}, nil, map[string][]Operation{"shop": {{"GET /cart", 0.1}, {"POST /pay", 1}}},
		},
		"under other rates": {
			[]trace.Op{cart},
			&Rates{Default: 0.01, Services: map[string][]Operation{"shop": {{"GET /cart", 0.05}}}},
			map[string][]Operation{"shop": {{"GET /cart", 0.5}}},
		},
	} {
		got := RatesOf(c.entries, table, seen, c.before, o)
		if got.Default != o.Default {
			t.Errorf("%s: default %g", name, got.Default)
		}
		diff := cmp.Diff(c.want, got.Services, cmp.Comparer(func(a, b float64) bool {
			return a-b < 1e-9 && b-a < 1e-9
		}))
		if diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	o.Budget = 4.5 // half of what the first entry needs
	got := RatesOf([]trace.Op{cart, pay}, table, seen, nil, o)
	want := map[string][]Operation{"shop": {{"GET /cart", 0.055}}}
	nearly := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, got.Services, nearly); diff != "" {
		t.Errorf("budget: %s", diff)
	}
}
