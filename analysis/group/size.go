package group

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// sizeRule configures the sizes of the requests of a type. The zero value means that they have no size.
type sizeRule struct {
	key     trace.Symbol  // of the attribute with the size in bytes
	timeout time.Duration // of a transfer; 0 if unknown
}

// Transfer is the size and the duration of a request.
type Transfer struct {
	Bytes uint64 // below 2^53
	Nanos int64
}

// Limits on sizes.
const (
	transfersKept = 256     // transfers in the sample of a window: a size model of four coefficients needs no more
	maxBytes      = 1 << 53 // sizes below it are exact as float64
)

// sizedPart is the fraction of requests that must have a size for a window to be judged by size.
const sizedPart = 0.5

// SizeOf returns the size of o in the attribute with the given key, and reports whether o has a size.
func SizeOf(key trace.Symbol, o *observation.Observation) (size uint64, found bool) {
	return sizeRule{key: key}.sizeOf(o)
}

// sizeOf returns the size of o, and reports whether o has a size. The size is the attribute of its entry span or, if
// that has no size, the largest size on the baseline path.
func (s sizeRule) sizeOf(o *observation.Observation) (size uint64, found bool) {
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

// SizeModel describes how the durations of a set of requests depend on their sizes, and how far they deviate from this
// relation. It is fitted to a uniform sample.
type SizeModel struct {
	stats.SizeModel
	Requests        uint64  // in the sample
	Delayed         float64 // fraction that took far longer than their size would suggest
	TimedOut        float64 // fraction that timed out
	BadLow, BadHigh float64 // 95 % interval of the fraction that was delayed or timed out
	CoV             float64 // standard deviation of the residuals relative to the mean: the CoV at equal size
	CoVLow, CoVHigh float64 // its 95 % interval
	CoVTotal        float64 // of the durations
	Typical         float64 // median duration in ns, adjusted to the usual size
	MeanExpected    float64 // ns
}

// Adjusted returns the duration of t adjusted to the usual size, in ns.
func (m *SizeModel) Adjusted(t Transfer) int64 {
	d := float64(t.Nanos) - (m.Expected(float64(t.Bytes)) - m.MeanExpected)
	return int64(min(max(0, d), stats.MaxNanos-1))
}

// distribution returns the adjusted durations of the requests in sample.
func (m *SizeModel) distribution(sample *stats.Sample[Transfer]) (s stats.Sketch) {
	for _, t := range sample.All() {
		s.Add(m.Adjusted(t))
	}
	return s
}

// fitSizes returns the size model of sample. If sample has too few transfers, it returns the zero model, whose Requests
// is 0.
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

// compare sets the fields that describe how far requests with the given sizes and durations deviate from the model.
func (m *SizeModel) compare(sizes, nanos []float64) {
	n := float64(len(sizes))
	s := m.Summary(sizes, nanos)
	m.Delayed, m.TimedOut = float64(s.Delayed)/n, float64(s.TimedOut)/n
	bad := stats.Proportion(uint64(s.Delayed+s.TimedOut), uint64(len(sizes)))
	m.BadLow, m.BadHigh = bad.Low, bad.High
	same := make([]float64, len(sizes)) // durations adjusted to the usual size
	for i, size := range sizes {
		same[i] = nanos[i] - (m.Expected(size) - m.MeanExpected)
	}
	_, total := stats.Table{Total: same}.Estimates()
	m.CoV, m.CoVLow, m.CoVHigh = total.CoV.Value, total.CoV.Low, total.CoV.High
	m.CoVTotal = stat.StdDev(nanos, nil) / stat.Mean(nanos, nil)
	m.Typical = stats.Median(slices.Clone(same))
}
