// Package units formats numbers for people: three significant digits, and the unit that keeps them short. The web UI
// follows the same rules: its tests and the tests of this package read testdata/format.json.
//
// NaN and infinities stand for unknown values and are written as a dash.
package units

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Unknown is the text of NaN and infinities.
const Unknown = "–"

// steps are the units of time, smallest first. Each is used below a limit, which is given in that unit.
var steps = []struct {
	nanos, below float64
	name         string
}{
	{1, 1000, "ns"},
	{1e3, 1000, "µs"},
	{1e6, 1000, "ms"},
	{1e9, 120, "s"},
	{60e9, 120, "min"},
	{3600e9, 48, "h"},
	{86400e9, math.Inf(1), "d"},
}

// roundsUp is the fraction of a unit's limit from which three significant digits round up to the limit, so that the
// next unit is used.
const roundsUp = 0.9995

// leastNanos is the shortest duration that is not written as 0. Sums of fractions leave smaller remainders.
const leastNanos = 0.01

// Duration returns d like "1.42 s" or "213 ms".
func Duration(d time.Duration) string { return Nanos(float64(d)) }

// Nanos is like Duration, but for a mean or a difference in nanoseconds.
func Nanos(ns float64) string {
	switch {
	case !finite(ns):
		return Unknown
	case math.Abs(ns) < leastNanos:
		return "0 ns"
	case ns < 0:
		return "−" + Nanos(-ns)
	}
	i := 0
	for ns/steps[i].nanos >= steps[i].below*roundsUp {
		i++
	}
	return digits(ns/steps[i].nanos) + " " + steps[i].name
}

// Coarse returns d, the time since or until an event, in whole units, like "40 s", "12 min" or "3 days". Negative times
// give "0 s".
func Coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(max(0, int(d.Seconds()))) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// Span returns d in two units, like "46.7 s", "4 min 40 s" or "2 h 5 min", for use next to a count. It is precise
// enough for readers to compute a rate from both.
func Span(d time.Duration) string {
	least, step := time.Minute, time.Second // the larger unit and the smaller unit
	names := [2]string{"min", "s"}
	switch {
	case d < 2*time.Minute:
		return Duration(max(0, d))
	case d.Round(time.Minute) >= 48*time.Hour:
		least, step, names = 24*time.Hour, time.Hour, [2]string{"days", "h"}
	case d.Round(time.Second) >= 2*time.Hour:
		least, step, names = time.Hour, time.Minute, [2]string{"h", "min"}
	}
	d = d.Round(step)
	text := strconv.Itoa(int(d/least)) + " " + names[0]
	if rest := d % least / step; rest > 0 {
		text += " " + strconv.Itoa(int(rest)) + " " + names[1]
	}
	return text
}

// Left is like Coarse, but for remaining time. It rounds up to whole seconds, so that the result is "0 s" only at the
// end.
func Left(d time.Duration) string { return Coarse(d + time.Second - 1) }

// Signed is like Nanos, with a plus sign for positive values.
func Signed(ns float64) string {
	if ns >= leastNanos && finite(ns) {
		return "+" + Nanos(ns)
	}
	return Nanos(ns)
}

// Percent formats the fraction f like "83 %" or "3.5 %".
func Percent(f float64) string {
	if !finite(f) {
		return Unknown
	}
	if n := PercentNumber(f); n != "0" || f == 0 {
		return minus(n) + " %"
	}
	return "≈0 %"
}

// Share is like Percent, but for a part of a whole. An estimate above 1, which is due to noise, is "all".
func Share(f float64) string {
	if f >= 0.995 && finite(f) {
		return "all"
	}
	return Percent(f)
}

// Part is like Percent, but for a counted part of a whole. "all" and "none" are exact; values close to them give "over
// 99 %" and "under 1 %".
func Part(f float64) string {
	switch {
	case !finite(f):
		return Unknown
	case f <= 0:
		return "none"
	case f < 0.01:
		return "under 1 %"
	case f <= 0.99:
		return Percent(f)
	case f < 1:
		return "over 99 %"
	}
	return "all"
}

// Sentence returns text as the start of a sentence: it capitalizes the first letter if it is ASCII.
func Sentence(text string) string {
	if text != "" && 'a' <= text[0] && text[0] <= 'z' {
		return string(text[0]-'a'+'A') + text[1:]
	}
	return text
}

// Percentile formats p, the percentage of other values that are smaller. It rounds down, and never returns 100 %,
// because no value is larger than itself.
func Percentile(p float64) string {
	switch {
	case !finite(p):
		return Unknown
	case p < 99:
		return fixed(math.Floor(p), 0) + " %"
	}
	return trimZeros(fixed(min(99.9, math.Floor(p*10)/10), 1)) + " %"
}

// PercentNumber is like Percent, but returns only the number, with an ASCII minus.
func PercentNumber(f float64) string {
	p := math.Abs(f * 100)
	s := ""
	switch {
	case !finite(f):
		return Unknown
	case p < 0.05:
		return "0"
	case p < 10:
		s = trimZeros(fixed(p, 1))
	default:
		s = fixed(p, 0)
	}
	if f < 0 {
		return "-" + s
	}
	return s
}

// Range returns the interval between the fractions low and high in percent, like "79–87".
func Range(low, high float64) string {
	if !finite(low) || !finite(high) {
		return Unknown
	}
	return minus(PercentNumber(low)) + "–" + minus(PercentNumber(high))
}

// Ratio returns x like "0.82", "1.4" or "14".
func Ratio(x float64) string {
	switch a := math.Abs(x); {
	case !finite(x):
		return Unknown
	case a >= 1000:
		return Count(int(math.Round(x)))
	case x < 0:
		return "−" + Ratio(-x)
	case a >= 9.95:
		return fixed(x, 0)
	case a >= 0.995:
		return fixed(x, 1)
	}
	return fixed(x, 2)
}

// Rate returns x, a number per second, like "0.333/s" or "14.2/s". x must not be negative. Rates below 0.1 have two
// digits, because columns are narrow.
func Rate(x float64) string {
	if !finite(x) {
		return Unknown
	}
	if x < 0.1 {
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 2, 64), 64)
	}
	return digits(x) + "/s"
}

// Minimum losses that are worth showing.
const (
	leastLost   = 1e6   // in ns per second
	leastFailed = 0.005 // per second
)

// Loss describes ns of additional latency and additional failed requests, both per second, like "1.2 s of waiting per
// second, beyond the usual". It leaves out a number that is too small, and returns "" if both are.
func Loss(ns, failed float64) string {
	var parts []string
	if ns >= leastLost {
		parts = append(parts, Nanos(ns)+" of waiting per second")
	}
	if failed >= leastFailed {
		parts = append(parts, digits(failed)+" failed requests per second")
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, " and ") + ", beyond the usual"
}

// Count returns n with commas between groups of three digits: "4,777".
func Count(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Plural returns n and the noun, with an s unless n is 1.
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Count(n) + " " + noun
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func minus(s string) string { return strings.Replace(s, "-", "−", 1) }

// digits returns x with three significant digits. x must not be negative.
func digits(x float64) string {
	if x >= 999.5 {
		return Count(int(math.Round(x)))
	}
	decimals := 0
	for bound := 100.0; x < bound && decimals < 12; bound /= 10 {
		decimals++
	}
	return trimZeros(fixed(x, decimals))
}

// fixed returns x with the given number of decimals. x must not be negative. Halves are rounded up, as in JavaScript.
func fixed(x float64, decimals int) string {
	scale := math.Pow10(decimals)
	if p := x * scale; p == math.Floor(p)+0.5 && math.FMA(x, scale, -p) == 0 {
		x = (p + 0.5) / scale
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// trimZeros removes trailing zeros after the decimal point.
func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
