package history

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

const (
	// LogsPerOctave is the number of steps of a logarithm per octave. Rounding errors are as often positive as
	// negative.
	LogsPerOctave = 8
	// logFrom is added to times, in ns, before taking logarithms: the shortest times differ because of the clock, not
	// because of the call.
	logFrom     = 1 << logFromBits
	logFromBits = 14
)

// mantissaLogs holds the logarithms of numbers from 1 to 2, by their first six fractional bits.
var mantissaLogs = func() (logs [1 << mantissaBits]uint8) {
	for i := range logs {
		logs[i] = uint8(math.Round(LogsPerOctave * math.Log2(1+(float64(i)+0.5)/float64(len(logs)))))
	}
	return logs
}()

const mantissaBits = 6

// logOf returns the logarithm of nanos, a time in ns, in units of 1/[LogsPerOctave] octave. The result is 0 for about 0
// ns. It is the same on all machines, because logOf uses no floating-point numbers.
func logOf(nanos int64) int64 {
	x := uint64(max(0, nanos)) + logFrom
	octave := bits.Len64(x) - 1
	mantissa := x >> (octave - mantissaBits) & (1<<mantissaBits - 1)
	return int64(octave-logFromBits)*LogsPerOctave + int64(mantissaLogs[mantissa])
}

// nanosOf returns the time in ns whose logarithm is octaves. Except for rounding and the unit, it is the inverse of
// [logOf].
func nanosOf(octaves float64) float64 { return logFrom * (math.Exp2(octaves) - 1) }

// octavesOf is the inverse of [nanosOf]: it converts a time in ns to octaves.
func octavesOf(nanos float64) float64 { return math.Log2(nanos/logFrom + 1) }

// Typical returns the typical own time of a call, in octaves: the mean logarithm. x must have calls.
func (x *Cell) Typical() float64 { return float64(x.logs) / float64(x.Calls) / LogsPerOctave }

// Logs is a sum of logarithms of times, and their number.
type Logs struct {
	Calls uint64
	sum   int64
}

// Add adds a call that took nanos.
func (l *Logs) Add(nanos int64) { l.Calls, l.sum = l.Calls+1, l.sum+logOf(nanos) }

// Octaves returns the typical time in octaves, or 0 if there are no times.
func (l Logs) Octaves() float64 { return float64(l.sum) / float64(max(1, l.Calls)) / LogsPerOctave }

// Nanos returns the typical time in ns.
func (l Logs) Nanos() float64 { return nanosOf(l.Octaves()) }

// LongFrom returns the minimum typical duration, in octaves, of requests that count as long. kinds holds all requests
// by kind; LongFrom sorts it in place. The limit is [longOctaves] above the median over all requests, so at least half
// of the requests are not long. It is 0 if there are no requests.
func LongFrom(kinds []Logs) float64 {
	all, passed := uint64(0), uint64(0)
	for _, k := range kinds {
		all += k.Calls
	}
	sorting.Slice(kinds, func(a, b Logs) int { return cmp.Compare(a.Octaves(), b.Octaves()) })
	for _, k := range kinds {
		if passed += k.Calls; 2*passed >= all {
			return k.Octaves() + longOctaves
		}
	}
	return 0
}
