package sampling

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/gogocodec"
)

// Strategies serves the latest published rates to SDKs, over HTTP and gRPC. It is safe for concurrent use.
type Strategies struct {
	rates atomic.Pointer[Rates]
}

// NewStrategies returns Strategies that serve r.
func NewStrategies(r *Rates) *Strategies {
	s := &Strategies{}
	s.Publish(r)
	return s
}

// Publish replaces the rates with r.
func (s *Strategies) Publish(r *Rates) { s.rates.Store(r) }

// Rates returns the latest published rates.
func (s *Strategies) Rates() *Rates { return s.rates.Load() }

const (
	// lowerBound is the minimum number of traces per second of each operation, so that rare requests are sampled.
	lowerBound = 1.0 / 60
	// placeholder is the only operation in lists that would otherwise be empty. The SDK for Java ignores strategies
	// with an empty list. Spans never have this name.
	placeholder = "sibyl.no.operation"
	// maxService is the maximum length of the name of a service.
	maxService = 1024
)

// operations returns the operations of service with their own rates, or a placeholder if no operation has its own rate.
func (r *Rates) operations(service string) []Operation {
	if list := r.Services[service]; len(list) > 0 {
		return list
	}
	return []Operation{{placeholder, r.Default}}
}

// The answer over HTTP is the JSON of api_v2 with names for enumerations and without nulls. SDKs in all languages
// decode it.
type (
	answer struct {
		Type       string        `json:"strategyType"`
		Share      probabilistic `json:"probabilisticSampling"`
		Operations perOperation  `json:"operationSampling"`
	}
	probabilistic struct {
		Rate float64 `json:"samplingRate"`
	}
	perOperation struct {
		Default    float64    `json:"defaultSamplingProbability"`
		LowerBound float64    `json:"defaultLowerBoundTracesPerSecond"`
		Strategies []strategy `json:"perOperationStrategies"`
	}
	strategy struct {
		Operation string        `json:"operation"`
		Share     probabilistic `json:"probabilisticSampling"`
	}
)

// ServeHTTP answers GET requests. A request must have exactly one parameter "service".
func (s *Strategies) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	services := q.URL.Query()["service"]
	if len(services) != 1 || services[0] == "" || len(services[0]) > maxService {
		http.Error(w, "want exactly one parameter service, as in /sampling?service=shop", http.StatusBadRequest)
		return
	}
	r := s.Rates()
	a := answer{"PROBABILISTIC", probabilistic{r.Default}, perOperation{Default: r.Default, LowerBound: lowerBound}}
	for _, o := range r.operations(services[0]) {
		a.Operations.Strategies = append(a.Operations.Strategies, strategy{o.Name, probabilistic{o.Share}})
	}
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings and finite numbers can be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // after an error the client asks again
}

// GetSamplingStrategy implements api_v2.SamplingManagerServer.
func (s *Strategies) GetSamplingStrategy(
	_ context.Context, q *api_v2.SamplingStrategyParameters,
) (*api_v2.SamplingStrategyResponse, error) {
	if q.ServiceName == "" || len(q.ServiceName) > maxService {
		return nil, status.Error(codes.InvalidArgument, "want the name of a service")
	}
	r := s.Rates()
	operations := &api_v2.PerOperationSamplingStrategies{
		DefaultSamplingProbability: r.Default, DefaultLowerBoundTracesPerSecond: lowerBound,
	}
	for _, o := range r.operations(q.ServiceName) {
		operations.PerOperationStrategies = append(operations.PerOperationStrategies, &api_v2.OperationSamplingStrategy{
			Operation: o.Name, ProbabilisticSampling: &api_v2.ProbabilisticSamplingStrategy{SamplingRate: o.Share},
		})
	}
	return &api_v2.SamplingStrategyResponse{
		StrategyType:          api_v2.SamplingStrategyType_PROBABILISTIC,
		ProbabilisticSampling: &api_v2.ProbabilisticSamplingStrategy{SamplingRate: r.Default},
		OperationSampling:     operations,
	}, nil
}

// Limits on clients over gRPC. Requests are small, because they contain only a name.
const (
	maxRequest = 64 << 10 // in bytes
	maxStreams = 64       // maximum number of streams per connection
	maxIdle    = 10 * time.Minute
)

// NewGRPC returns a gRPC server that answers from s. The caller starts and stops it.
func (s *Strategies) NewGRPC(options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodec(gogocodec.New()), grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle}),
	}, options...)...)
	api_v2.RegisterSamplingManagerServer(server, s)
	return server
}
