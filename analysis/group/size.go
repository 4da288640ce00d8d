package group

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// sizing is what rules say about the sizes of the requests of a type. The zero value says that they have none.
type sizing struct {
	key     trace.Symbol  // of the attribute that holds the size, in bytes
	timeout time.Duration // after which a transfer is given up; 0: none is known
}

// Transfer is a request with its size.
type Transfer struct {
	Bytes uint64 // below 2^53
	Nanos int64
}

// Bounds on what is kept of sizes.
const (
	transfersKept = 256     // of a window: a size model of four coefficients needs no more
	maxBytes      = 1 << 53 // the largest size that a float64 tells from its neighbours
)

// sizedPart is the part of the requests of a window that must have a size for the window to be judged by size.
const sizedPart = 0.5

// SizeOf returns the size of a request that has it in the attribute with the given key; false if it has none.
func SizeOf(key trace.Symbol, o *observation.Observation) (size uint64, found bool) {
	return sizing{key: key}.sizeOf(o)
}

// sizeOf returns the size of a request: the attribute of its entry span or, where that has none, the largest among the baseline
// places on its path. It returns false if there is none.
func (s sizing) sizeOf(o *observation.Observation) (size uint64, found bool) {
	if s.key == 0 {
		return 0, false
	}
	entry := trace.Context(0).Child(o.Entry)
	var own, largest uint64
	var atEntry, elsewhere bool
	o.EachVariable([]trace.Symbol{s.key}, func(v *observation.Variable) {
		switch {
		case !v.Numeric || !(v.Number >= 0 && v.Number < maxBytes):
		case v.Context == entry:
			own, atEntry = uint64(v.Number), true
		default:
			largest, elsewhere = max(largest, uint64(v.Number)), true
		}
	})
	if atEntry {
		return own, true
	}
	return largest, elsewhere
}

// SizeModel is how the durations of a set of requests depend on their sizes, and how the requests compare with that. It comes from a
// uniform sample.
type SizeModel struct {
	stats.SizeModel
	Requests        uint64  // in the sample
	Delayed         float64 // part of them that took far longer than their size lets expect
	TimedOut        float64 // part of them that was given up
	BadLow, BadHigh float64 // 95 % interval of the part that is either
	CoV             float64 // of what the size does not account for: the standard deviation of the residuals relative to the mean
	CoVLow, CoVHigh float64 // its 95 % interval
	CoVTotal        float64 // of the durations as they are
	Typical         float64 // ns: median duration of requests if they were all of the same size
	MeanExpected    float64 // ns
}

// Adjusted returns how long a request would have taken if it were of the usual size, in ns.
func (m *SizeModel) Adjusted(t Transfer) int64 {
	d := float64(t.Nanos) - (m.Expected(float64(t.Bytes)) - m.MeanExpected)
	return int64(min(max(0, d), stats.MaxNanos-1))
}

// distribution returns the durations of a sample of requests if they were of the usual size.
func (m *SizeModel) distribution(sample *stats.Sample[Transfer]) (s stats.Sketch) {
	for _, t := range sample.All() {
		s.Add(m.Adjusted(t))
	}
	return s
}

// fitSizes returns the size model of a sample; one of no requests where there are too few.
func fitSizes(sample *stats.Sample[Transfer], timeout time.Duration) *SizeModel {
	var sizes, nanos []float64
	for _, t := range sample.All() {
		sizes, nanos = append(sizes, float64(t.Bytes)), append(nanos, float64(t.Nanos))
	}
	options := stats.DefaultSizeOptions()
	options.Timeout = float64(timeout)
	fit, err := stats.FitSize(sizes, nanos, options)
	if err != nil {
		return &SizeModel{}
	}
	m := &SizeModel{SizeModel: fit, Requests: uint64(len(sizes))}
	for _, size := range sizes {
		m.MeanExpected += fit.Expected(size) / float64(len(sizes))
	}
	m.compare(sizes, nanos)
	return m
}

// compare fills in how requests compare with the model.
func (m *SizeModel) compare(sizes, nanos []float64) {
	n := float64(len(sizes))
	s := m.Summary(sizes, nanos)
	m.Delayed, m.TimedOut = float64(s.Delayed)/n, float64(s.TimedOut)/n
	bad := stats.Proportion(uint64(s.Delayed+s.TimedOut), uint64(len(sizes)))
	m.BadLow, m.BadHigh = bad.Low, bad.High
	same := make([]float64, len(sizes)) // durations if all were of one size
	for i, size := range sizes {
		same[i] = nanos[i] - (m.Expected(size) - m.MeanExpected)
	}
	_, total := stats.Table{Total: same}.Estimates()
	m.CoV, m.CoVLow, m.CoVHigh = total.CoV.Value, total.CoV.Low, total.CoV.High
	m.CoVTotal = stat.StdDev(nanos, nil) / stat.Mean(nanos, nil)
	m.Typical = stats.Median(slices.Clone(same))
}
