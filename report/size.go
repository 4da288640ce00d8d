package report

import (
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// jsonSizeModel is a model of durations as a function of the size of requests.
type jsonSizeModel struct {
	InterceptNS describe.Number `json:"intercept_ns"`
	NSPerByte   describe.Number `json:"ns_per_byte"`
	NSPerPacket describe.Number `json:"ns_per_packet"` // per packet after the first
	PacketBytes int             `json:"packet_bytes"`
	Requests    uint64          `json:"requests"` // requests sampled for the model
	Delayed     describe.Number `json:"delayed"`  // fraction of Requests
	TimedOut    describe.Number `json:"timed_out"`
	BadLow      describe.Number `json:"bad_low"` // 95 % interval of Delayed + TimedOut
	BadHigh     describe.Number `json:"bad_high"`
	CoVTotal    describe.Number `json:"cov_total"` // CoV of the durations, regardless of size
}

// jsonSizeModelOf returns the JSON form of m, or nil if m is nil.
func jsonSizeModelOf(m *group.SizeModel) *jsonSizeModel {
	if m == nil {
		return nil
	}
	return &jsonSizeModel{
		InterceptNS: describe.Number(m.Base),
		NSPerByte:   describe.Number(m.PerByte),
		NSPerPacket: describe.Number(m.PerSegment),
		PacketBytes: m.Segment,
		Requests:    m.Requests,
		Delayed:     describe.Number(m.Delayed),
		TimedOut:    describe.Number(m.TimedOut),
		BadLow:      describe.Number(m.BadLow),
		BadHigh:     describe.Number(m.BadHigh),
		CoVTotal:    describe.Number(m.CoVTotal),
	}
}

// sizeSentence returns a sentence about m and the requests that take longer than m predicts. It is empty if m is nil.
func sizeSentence(m *group.SizeModel) (s describe.Sentence) {
	if m == nil {
		return nil
	}
	s.Plain("a request takes " + units.Nanos(m.Base) + " plus " + units.Nanos(1000*m.PerByte) + " per kB")
	if m.PerSegment > 0 {
		s.Plain(" plus " + units.Nanos(m.PerSegment) + " per full packet of " + strconv.Itoa(m.Segment) + " B")
	}
	s.Plain("; ")
	s.Strong(units.Percent(m.Delayed) + " are delayed")
	s.Plain(", " + units.Percent(m.TimedOut) + " time out; the CoV is " + units.Ratio(m.CoVTotal) + ", and " +
		units.Ratio(m.CoV) + " at equal size")
	return s
}
