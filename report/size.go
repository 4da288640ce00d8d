package report

import (
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// jsonSizeModel is how durations depend on sizes.
type jsonSizeModel struct {
	InterceptNS number `json:"intercept_ns"`
	NSPerByte   number `json:"ns_per_byte"`
	NSPerPacket number `json:"ns_per_packet"` // beyond the first
	PacketBytes int    `json:"packet_bytes"`
	Requests    uint64 `json:"requests"` // sampled
	Delayed     number `json:"delayed"`  // part of them
	TimedOut    number `json:"timed_out"`
	BadLow      number `json:"bad_low"` // interval of both together
	BadHigh     number `json:"bad_high"`
	CoVTotal    number `json:"cov_total"` // of the durations as they are
}

// jsonSizeModelOf returns nil, which JSON shows as null, for requests that are not judged by size.
func jsonSizeModelOf(m *group.SizeModel) *jsonSizeModel {
	if m == nil {
		return nil
	}
	return &jsonSizeModel{
		InterceptNS: number(m.Base), NSPerByte: number(m.PerByte), NSPerPacket: number(m.PerSegment), PacketBytes: m.Segment,
		Requests: m.Requests, Delayed: number(m.Delayed), TimedOut: number(m.TimedOut),
		BadLow: number(m.BadLow), BadHigh: number(m.BadHigh), CoVTotal: number(m.CoVTotal),
	}
}

// sizeSentence says what a request takes for its size, and how requests compare with that; empty for requests that are not judged by
// size.
func sizeSentence(m *group.SizeModel) (s describe.Sentence) {
	if m == nil {
		return nil
	}
	s.Plain("a request takes " + units.Nanos(m.Base) + " and " + units.Nanos(1000*m.PerByte) + " a kB")
	if m.PerSegment > 0 {
		s.Plain(" and " + units.Nanos(m.PerSegment) + " for each " + strconv.Itoa(m.Segment) + " B full")
	}
	s.Plain("; ")
	s.Strong(units.Percent(m.Delayed) + " are delayed")
	s.Plain(", " + units.Percent(m.TimedOut) + " time out; the CoV is " + units.Ratio(m.CoVTotal) + ", and " + units.Ratio(m.CoV) + " at equal size")
	return s
}
