package baselinediff

import (
	"math"
	"math/bits"
)

// The typical own time of calls is their geometric mean. A call that takes ten times as long makes up a third of the
// mean of thirty, but only 8 % of their geometric mean. So small changes of most calls show in few of them.

const (
	// logsPerOctave is the number of steps in which logarithms are counted. Rounding errors are as often up as down.
	logsPerOctave = 8
	// logFrom is added to times, in ns, before their logarithms are taken: the shortest times differ by what the clock
	// does, not by what the call does.
	logFrom     = 1 << logFromBits
	logFromBits = 14
)

// mantissaLogs holds the logarithms of numbers from 1 to 2, by the first six bits behind the point.
var mantissaLogs = func() (logs [1 << mantissaBits]uint8) {
	for i := range logs {
		logs[i] = uint8(math.Round(logsPerOctave * math.Log2(1+(float64(i)+0.5)/float64(len(logs)))))
	}
	return logs
}()

const mantissaBits = 6

// logOf returns the logarithm of a time in ns, as multiple of an octave by [logsPerOctave]; 0 for about 0 ns. It needs
// no floating-point numbers, so that it is the same on all machines.
func logOf(nanos int64) int64 {
	x := uint64(max(0, nanos)) + logFrom
	octave := bits.Len64(x) - 1
	mantissa := x >> (octave - mantissaBits) & (1<<mantissaBits - 1)
	return int64(octave-logFromBits)*logsPerOctave + int64(mantissaLogs[mantissa])
}

// rise is the growth of the typical own time of calls.
type rise struct {
	octaves float64
	usual   float64 // that of the fence of the history, in octaves
}

// beyond returns the growth beyond one that is usual at this hour; the zero value if that explains it.
func (r rise) beyond(habit float64) rise {
	r.octaves -= habit
	if r.octaves <= r.usual {
		return rise{}
	}
	return r
}

// typical returns the typical own time of the last two of three parts of calls, each with about a third of them, like
// the parts of [steadyMean], and that of the lower one of the two, on a logarithmic scale in octaves. It leaves the
// first part out so that a change shows one minute earlier. There are calls.
func (c cells) typical() (both, lower float64) {
	calls := c.calls()
	var part, sum cell
	done := uint64(0)
	lower = math.Inf(1)
	for i := range c {
		part.merge(&c[i])
		n := uint64(part.calls)
		if (done+n)*steadyParts < calls*(partNumber(done, calls)+1) {
			continue
		}
		if done > 0 || n == calls {
			lower = min(lower, part.typical())
			sum.merge(&part)
		}
		done += n
		part = cell{}
	}
	return sum.typical(), lower
}

// typical returns the typical own time of calls on a logarithmic scale in octaves.
func (x *cell) typical() float64 { return float64(x.logs) / float64(x.calls) / logsPerOctave }
