// Package units writes numbers for people: three significant digits, with the unit that keeps them short.
//
// NaN stands for "not known" everywhere and is written as a dash.
package units

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Unknown is written for NaN and infinities.
const Unknown = "–"

// steps of time, largest first.
var steps = []struct {
	nanos float64
	name  string
}{
	{3600e9, "h"}, {60e9, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"},
}

// Duration returns d like "1.42 s" or "213 ms".
func Duration(d time.Duration) string { return Nanos(float64(d)) }

// Nanos is Duration for a mean or a difference in nanoseconds.
func Nanos(ns float64) string {
	if !finite(ns) {
		return Unknown
	}
	if ns < 0 {
		return "−" + Nanos(-ns)
	}
	for _, s := range steps {
		if digits := threeDigits(ns / s.nanos); digits != "" && atLeastOne(digits) {
			return digits + " " + s.name
		}
	}
	if ns == 0 {
		return "0 ns"
	}
	return "<1 ns"
}

// Signed is Nanos with a plus sign before what is above 0.
func Signed(ns float64) string {
	if s := Nanos(ns); ns > 0 {
		return "+" + s
	}
	return Nanos(ns)
}

// Percent returns the fraction f like "83 %", without decimals but for what rounds to less than 1 %.
func Percent(f float64) string {
	if !finite(f) {
		return Unknown
	}
	return minus(PercentNumber(f)) + " %"
}

// Share is Percent for a part of a whole, which noise may estimate as more than that: then it is "all".
func Share(f float64) string {
	if f >= 0.995 && finite(f) {
		return "all"
	}
	return Percent(f)
}

// PercentNumber is Percent without the sign.
func PercentNumber(f float64) string {
	p := f * 100
	switch {
	case !finite(f):
		return Unknown
	case math.Abs(p) < 0.05:
		return "0"
	case math.Abs(p) < 0.95:
		return strconv.FormatFloat(p, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Round(p)+0, 'f', 0, 64) // +0: no "-0"
}

// Range returns the interval of two fractions like "79–87".
func Range(low, high float64) string {
	if !finite(low) || !finite(high) {
		return Unknown
	}
	return minus(PercentNumber(low)) + "–" + minus(PercentNumber(high))
}

// Ratio returns x like "0.82" or "14".
func Ratio(x float64) string {
	if !finite(x) {
		return Unknown
	}
	switch a := math.Abs(x); {
	case a >= 1000:
		return Count(int(math.Round(x)))
	case a >= 9.95:
		return minus(strconv.FormatFloat(x, 'f', 0, 64))
	case a >= 0.995:
		return minus(strconv.FormatFloat(x, 'f', 1, 64))
	}
	return minus(strconv.FormatFloat(x, 'f', 2, 64))
}

// Count returns n with a thin gap between groups of three digits: "4 777".
func Count(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
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

// threeDigits rounds x to three significant digits; "" if it is too small to have any before its second decimal.
func threeDigits(x float64) string {
	switch {
	case x >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 9.995:
		return trimZeros(strconv.FormatFloat(x, 'f', 1, 64))
	case x >= 0.9995:
		return trimZeros(strconv.FormatFloat(x, 'f', 2, 64))
	}
	return ""
}

func trimZeros(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }

func atLeastOne(digits string) bool { return digits[0] != '0' }
