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

// Strategies answers SDKs that ask how much to sample, from the rates published last. It is safe for concurrent use.
type Strategies struct {
	rates atomic.Pointer[Rates]
}

// NewStrategies returns Strategies that answer from r until others are published.
func NewStrategies(r *Rates) *Strategies {
	s := &Strategies{}
	s.Publish(r)
	return s
}

// Publish replaces the rates.
func (s *Strategies) Publish(r *Rates) { s.rates.Store(r) }

// Rates returns the rates published last.
func (s *Strategies) Rates() *Rates { return s.rates.Load() }

const (
	// lowerBound is how many traces a second of each operation are sampled whatever its share: those of rare requests.
	lowerBound = 1.0 / 60
	// anyOperation stands in a list that would be empty, which the SDK for Java ignores with all that stands beside it. No span is
	// called so.
	anyOperation = "sibyl.no.operation"
	// longestService bounds the name of a service.
	longestService = 1024
)

// operations returns what a service is told; never nothing.
func (r *Rates) operations(service string) []Operation {
	if list := r.Services[service]; len(list) > 0 {
		return list
	}
	return []Operation{{anyOperation, r.Default}}
}

// The answer over HTTP, as SDKs of all languages read it: the JSON of api_v2 with names for enumerations and without nulls.
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

// ServeHTTP answers GET with exactly one parameter service.
func (s *Strategies) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is answered here", http.StatusMethodNotAllowed)
		return
	}
	services := q.URL.Query()["service"]
	if len(services) != 1 || services[0] == "" || len(services[0]) > longestService {
		http.Error(w, "exactly one parameter service is needed, like /sampling?service=shop", http.StatusBadRequest)
		return
	}
	r := s.Rates()
	a := answer{"PROBABILISTIC", probabilistic{r.Default}, perOperation{Default: r.Default, LowerBound: lowerBound}}
	for _, o := range r.operations(services[0]) {
		a.Operations.Strategies = append(a.Operations.Strategies, strategy{o.Name, probabilistic{o.Share}})
	}
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // texts and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // whoever went away asks again
}

// GetSamplingStrategy implements api_v2.SamplingManagerServer.
func (s *Strategies) GetSamplingStrategy(_ context.Context, q *api_v2.SamplingStrategyParameters) (*api_v2.SamplingStrategyResponse, error) {
	if q.ServiceName == "" || len(q.ServiceName) > longestService {
		return nil, status.Error(codes.InvalidArgument, "the name of a service is needed")
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

// Bounds of what clients of gRPC can ask for: questions are names.
const (
	mostQuestion = 64 << 10 // bytes
	mostStreams  = 64       // of one connection
	mostIdle     = 10 * time.Minute
)

// NewGRPC returns a server that answers over gRPC. The caller has it listen, and stops it.
func (s *Strategies) NewGRPC(options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodec(gogocodec.New()), grpc.MaxRecvMsgSize(mostQuestion), grpc.MaxConcurrentStreams(mostStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: mostIdle}),
	}, options...)...)
	api_v2.RegisterSamplingManagerServer(server, s)
	return server
}
