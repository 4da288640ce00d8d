package analysis

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Summary is what is known about a group, or about a request type as a whole, over the requests that were judged.
type Summary struct {
	ID          Hash
	Level       Level
	RequestType Hash
	Entry       trace.Op
	// Distinct holds, for a request type that is one of several with the same entry operation, the operations of the
	// entry's children that tell it apart, most telling first. Empty where the entry operation is enough of a name.
	Distinct []trace.Op

	Count    uint64
	Mean     time.Duration
	P50, P99 time.Duration // within 1 % of the exact quantile
	CoV      float64       // NaN under two requests
	CoVLow   float64       // 95 % interval
	CoVHigh  float64
	Edges    []EdgeShare // by falling share of the mean; the remainder beyond the bound last, with Edge 0
	Latency  []Bin       // histogram over the durations, ascending, only bins that are not empty
}

// Bin is one bin of a histogram: Count durations in (Low, High].
type Bin struct {
	Low, High time.Duration
	Count     uint64
}
