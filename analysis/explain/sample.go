package explain

import (
	"fmt"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// maxSimulated is the maximum number of requests of a sample that are simulated.
const maxSimulated = 64

// Sample is a uniform sample of the requests of a problem with the data that explanations need: the tracepoints enabled
// for each request, the number of other requests in service when it arrived, and the simulations of the requests with
// the smallest keys. It depends only on the set of requests, not on their order. It is not safe for concurrent use.
type Sample struct {
	requests stats.Sample[*Sampled]
	seen     uint64
	spans    int    // maximum number of spans of all simulations
	simulate uint64 // requests with keys at or above it are not simulated; 0 means no limit
}

// Sampled is a request of a [Sample].
type Sampled struct {
	*observation.Observation
	enabled    []trace.Symbol       // ascending
	simulation *critpath.Simulation // may be nil
	others     int64                // number of other requests in service when it arrived; valid if load is counted
	load       loadState
}

// loadState is the state of Sampled.others.
type loadState uint8

const (
	uncounted loadState = iota // no epoch has ended since the request was sampled
	counted
	unknown // earlier requests were not observed
	loadStates
)

// NewSample returns an empty sample. requests is the maximum number of its requests, and spans the maximum number of
// spans of all their simulations together.
func NewSample(requests, spans int) *Sample {
	return &Sample{requests: stats.NewSample[*Sampled](requests), spans: spans}
}

// Observe adds o. enabled holds the tracepoints enabled for it, in ascending order. simulation may be nil. Observe
// retains enabled, and copies o and simulation.
func (s *Sample) Observe(o *observation.Observation, enabled []trace.Symbol, simulation *critpath.Simulation) {
	s.seen++
	key := o.Key()
	if !s.requests.Accepts(key) {
		return
	}
	x := &Sampled{Observation: o.Clone(), enabled: enabled}
	s.requests.Add(key, x)
	if simulation != nil {
		s.Simulate(x, simulation)
	}
}

// Seen returns the number of requests added.
func (s *Sample) Seen() uint64 { return s.seen }

// Requests returns the sampled requests in ascending order of the key, which is a random order. The caller must not
// change them.
func (s *Sample) Requests() []*observation.Observation {
	all := make([]*observation.Observation, 0, s.requests.Len())
	for _, x := range s.requests.All() {
		all = append(all, x.Observation)
	}
	return all
}

// ToSimulate returns the sampled requests that [Sample.Simulate] should be called for.
func (s *Sample) ToSimulate() []*Sampled {
	all := make([]*Sampled, 0, maxSimulated)
	for _, x := range s.requests.All() {
		if len(all) == maxSimulated {
			break
		}
		all = append(all, x)
	}
	return all
}

// Simulate sets the simulation of x, a request of the sample, unless that would exceed the limits. It copies the
// simulation. Simulations of requests with larger keys are dropped first, so the result does not depend on the order of
// calls.
func (s *Sample) Simulate(x *Sampled, simulation *critpath.Simulation) {
	if simulation.Len() > s.spans || s.simulate != 0 && x.Key() >= s.simulate {
		return
	}
	x.simulation = simulation.Clone()
	n, spans := 0, 0
	for key, x := range s.requests.All() {
		if x.simulation == nil {
			continue
		}
		n++
		spans += x.simulation.Len()
		if n > maxSimulated || spans > s.spans {
			s.simulate = max(1, key)
			break
		}
	}
	if s.simulate == 0 {
		return
	}
	for key, x := range s.requests.All() {
		if key >= s.simulate {
			x.simulation = nil
		}
	}
}

// Measure sets the number of other requests in service at the arrival of each sampled request, given the load of all
// requests.
func (s *Sample) Measure(l *Load) {
	for _, x := range s.requests.All() {
		x.others, x.load = int64(l.At(x.Start)-1), counted
	}
}

// Count adds, for each sampled request, the other requests in service at its arrival that were observed in the last
// epoch of l. It must be called once after each [RecentLoad.Close].
func (s *Sample) Count(l *RecentLoad) {
	for _, x := range s.requests.All() {
		switch x.load {
		case counted:
			x.others += l.last(x.Start)
		case uncounted:
			if !l.covers() {
				x.load = unknown
				continue
			}
			x.others, x.load = l.at(x.Start)-l.weight(x.Key()), counted
		case unknown, loadStates:
		}
	}
}

// concurrency returns a function for Options.Concurrency.
func (s *Sample) concurrency() func(o *observation.Observation) float64 {
	others := make(map[*observation.Observation]float64, s.requests.Len())
	for _, x := range s.requests.All() {
		others[x.Observation] = math.NaN()
		if x.load == counted {
			others[x.Observation] = float64(x.others)
		}
	}
	return func(o *observation.Observation) float64 { return others[o] }
}

// enabled returns a function for Options.On.
func (s *Sample) enabled() func(o *observation.Observation, tracepoint trace.Symbol) bool {
	enabled := make(map[*observation.Observation][]trace.Symbol, s.requests.Len())
	for _, x := range s.requests.All() {
		enabled[x.Observation] = x.enabled
	}
	return func(o *observation.Observation, tracepoint trace.Symbol) bool {
		_, is := slices.BinarySearch(enabled[o], tracepoint)
		return is
	}
}

// Frequencies compares the attributes of two disjoint sets of the sampled requests; see [Frequencies].
func (s *Sample) Frequencies(a, b []*observation.Observation, table *trace.Table) []Frequency {
	return Frequencies(a, b, table, Options{On: s.enabled()})
}

// recoveries simulates the requests of the sample with each edge at its level.
func (s *Sample) recoveries(p *detect.Problem, levels []observation.EdgeNanos) []Recovery {
	r := NewRecoveries(p.Level, levels)
	for _, x := range s.requests.All() {
		if x.simulation != nil {
			r.Add(x.Observation, x.simulation)
		}
	}
	return r.All()
}

const sampleVersion = 1

// AppendBinary appends s to b.
func (s *Sample) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(append(b, sampleVersion), s.seen, uint64(s.spans))
	b = codec.AppendWords(b, s.simulate)
	return s.requests.AppendBinary(b, appendSampled)
}

func appendSampled(b []byte, x *Sampled) []byte {
	b = observation.AppendObservation(b, x.Observation)
	b = codec.AppendUvarints(b, uint64(len(x.enabled)))
	for _, id := range x.enabled {
		b = codec.AppendWords(b, uint64(id))
	}
	b = codec.AppendUvarints(b, uint64(x.load))
	if x.load == counted {
		b = codec.AppendVarints(b, x.others)
	}
	b = codec.AppendBools(b, x.simulation != nil)
	if x.simulation != nil {
		b = x.simulation.AppendBinary(b)
	}
	return b
}

// DecodeSample decodes the output of [Sample.AppendBinary] and returns the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeSample(b []byte) (*Sample, []byte, error) {
	d := codec.NewReader(b)
	d.Version(sampleVersion)
	s := &Sample{seen: d.Uvarint(), spans: int(d.Below(math.MaxInt32)), simulate: d.Word()}
	s.requests = codec.Read(d,
		func(b []byte) (stats.Sample[*Sampled], []byte, error) { return stats.DecodeSample(b, decodeSampled) })
	if d.Bad() {
		return nil, nil, fmt.Errorf("%w: sampled requests", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}

func decodeSampled(b []byte) (*Sampled, []byte, error) {
	d := codec.NewReader(b)
	x := readSampled(d)
	x.load = loadState(d.Below(uint64(loadStates)))
	if x.load == counted {
		x.others = d.Varint()
	}
	if d.Bool() {
		x.simulation = codec.Read(d, critpath.DecodeSimulation)
	}
	if d.Bad() {
		return nil, nil, fmt.Errorf("%w: sampled request", codec.ErrCorrupt)
	}
	return x, d.Rest(), nil
}

// readSampled decodes an observation and the tracepoints enabled for it.
func readSampled(d *codec.Reader) *Sampled {
	x := &Sampled{Observation: codec.Read(d, observation.DecodeObservation)}
	for range d.Count(8) {
		x.enabled = append(x.enabled, trace.Symbol(d.Word()))
	}
	return x
}
