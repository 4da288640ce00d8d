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

// measureEvery is how many hits there are to one that is measured.
const measureEvery = 256

// What a hit is taken to cost before it was measured.
const (
	spanNanos     = 1500
	variableNanos = 150
	variableBytes = 40
)

// fixedBytes is what every span takes in OTLP beside name and attributes: identities, times, tags and lengths.
const fixedBytes = 70

// attributeBytes is what an attribute takes beside its key and a text: tags and lengths; a number fits, too.
const attributeBytes = 10

func spanBytes(name string) int {
	return fixedBytes + len(name) + attributeBytes + len(protocol.KeyTracepoint) + len(name)
}

// longest is what a hit may take; longer, and the goroutine was interrupted, so that something else was measured.
const longest = time.Millisecond

// measured is what the hits that were measured cost.
type measured struct{ timed, sized, nanos, bytes atomic.Uint64 }

func (m *measured) add(d time.Duration, bytes int) {
	if d < longest {
		m.nanos.Add(uint64(d))
		m.timed.Add(1)
	}
	if bytes > 0 {
		m.bytes.Add(uint64(bytes))
		m.sized.Add(1)
	}
}

func mean(sum, n *atomic.Uint64) float64 {
	if k := n.Load(); k > 0 {
		return float64(sum.Load()) / float64(k)
	}
	return 0
}

// bytesOf estimates what s takes in OTLP; 0 if it does not tell what it holds.
func bytesOf(s trace.Span) int {
	told, ok := s.(interface {
		Name() string
		Attributes() []attribute.KeyValue
	})
	if !ok {
		return 0
	}
	n := fixedBytes + len(told.Name())
	for _, kv := range told.Attributes() {
		n += sizeOf(kv)
	}
	return n
}

func sizeOf(kv attribute.KeyValue) int {
	n := attributeBytes + len(kv.Key)
	if kv.Value.Type() == attribute.STRING {
		n += len(kv.Value.AsString())
	}
	return n
}

// Outcomes returns what became of the tracepoints of the plan, and what all that were ever hit cost, ascending by ID.
func (r *Registry) Outcomes() []protocol.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []protocol.Outcome
	wanted := r.state.Load().wanted()
	for id, p := range r.byID {
		if p.hits.Load() == 0 && !wanted[id] {
			continue
		}
		delete(wanted, id)
		list = append(list, protocol.Outcome{
			ID: id, State: protocol.Applied, Hits: p.hits.Load(), Drops: p.drops.Load(),
			Nanos: mean(&p.measured.nanos, &p.measured.timed), Bytes: min(mean(&p.measured.bytes, &p.measured.sized), protocol.MaxHitBytes),
		})
	}
	for id := range wanted {
		list = append(list, protocol.Outcome{ID: id, State: protocol.Unsupported, Reason: "no such tracepoint here"})
	}
	slices.SortFunc(list, func(a, b protocol.Outcome) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), protocol.MaxOutcomes)]
}

// wanted returns the IDs of what the plan has on in any arm.
func (s *state) wanted() map[string]bool {
	ids := make(map[string]bool)
	if s.now != nil {
		for _, a := range s.now.arms {
			for id := range a.enabled {
				ids[id] = true
			}
		}
	}
	return ids
}
