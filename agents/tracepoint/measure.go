package tracepoint

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// measureEvery is the sampling interval of measurements: one in measureEvery hits is measured.
const measureEvery = 256

// Estimated cost of a hit until it is measured.
const (
	spanNanos     = 1500
	variableNanos = 150
	variableBytes = 40
)

// spanOverheadBytes is the OTLP size of a span without its name and attributes, that is, of IDs, times, tags and
// lengths.
const spanOverheadBytes = 70

// attributeOverheadBytes is the OTLP size of an attribute without its key and string value, that is, of tags and
// lengths. It also covers numeric values.
const attributeOverheadBytes = 10

// estimateSpanBytes returns the estimated OTLP size of a span with the given name.
func estimateSpanBytes(name string) int {
	return spanOverheadBytes + len(name) + attributeOverheadBytes + len(protocol.KeyTracepoint) + len(name)
}

// maxHitDuration is the longest plausible duration of a hit. Longer durations are ignored, because the goroutine was
// probably preempted.
const maxHitDuration = time.Millisecond

// measurements accumulates the measured costs of hits.
type measurements struct{ timed, sized, nanos, bytes atomic.Uint64 }

// add adds one hit. It ignores implausible durations, and sizes of 0, which mean unknown.
func (m *measurements) add(d time.Duration, bytes int) {
	if d < maxHitDuration {
		m.nanos.Add(uint64(d))
		m.timed.Add(1)
	}
	if bytes > 0 {
		m.bytes.Add(uint64(bytes))
		m.sized.Add(1)
	}
}

// mean returns sum/n, or 0 if n is 0.
func mean(sum, n *atomic.Uint64) float64 {
	if k := n.Load(); k > 0 {
		return float64(sum.Load()) / float64(k)
	}
	return 0
}

// spanBytes estimates the OTLP size of s. It returns 0 if the type of s doesn't expose its name and attributes.
func spanBytes(s trace.Span) int {
	readable, ok := s.(interface {
		Name() string
		Attributes() []attribute.KeyValue
	})
	if !ok {
		return 0
	}
	n := spanOverheadBytes + len(readable.Name())
	for _, kv := range readable.Attributes() {
		n += attributeBytes(kv)
	}
	return n
}

func attributeBytes(kv attribute.KeyValue) int {
	n := attributeOverheadBytes + len(kv.Key)
	if kv.Value.Type() == attribute.STRING {
		n += len(kv.Value.AsString())
	}
	return n
}

// Outcomes returns the states of the tracepoints of the current plan and the costs of all tracepoints with hits,
// ascending by ID. It returns at most [protocol.MaxOutcomes].
func (r *Registry) Outcomes() []protocol.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []protocol.Outcome
	planned := r.state.Load().plannedIDs()
	for id, p := range r.byID {
		if p.hits.Load() == 0 && !planned[id] {
			continue
		}
		delete(planned, id)
		list = append(list, protocol.Outcome{
			ID:    id,
			State: protocol.Applied,
			Hits:  p.hits.Load(),
			Drops: p.drops.Load(),
			Nanos: mean(&p.measured.nanos, &p.measured.timed),
			Bytes: min(mean(&p.measured.bytes, &p.measured.sized), protocol.MaxHitBytes),
		})
	}
	for id := range planned {
		list = append(list,
			protocol.Outcome{ID: id, State: protocol.Unsupported, Reason: "the process has no such tracepoint"})
	}
	slices.SortFunc(list, func(a, b protocol.Outcome) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), protocol.MaxOutcomes)]
}

// plannedIDs returns the IDs that the current plan enables in any arm.
func (s *state) plannedIDs() map[string]bool {
	ids := make(map[string]bool)
	if s.current != nil {
		for _, a := range s.current.arms {
			for id := range a.enabled {
				ids[id] = true
			}
		}
	}
	return ids
}
