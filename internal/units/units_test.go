package units

import (
	"math"
	"testing"
)

func TestNanos(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0 ns", 0.4: "<1 ns", 1: "1 ns", 999: "999 ns", 999.6: "1 µs", 1500: "1.5 µs", 12_345: "12.3 µs", 101e6: "101 ms",
		1.4249e9: "1.42 s", 59.9e9: "59.9 s", 90e9: "1.5 min", 7.2e12: "2 h", -3e6: "−3 ms", math.NaN(): "–", math.Inf(1): "–",
	} {
		if got := Nanos(ns); got != want {
			t.Errorf("Nanos(%v) = %q, want %q", ns, got, want)
		}
	}
}

func TestFractions(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0 %", 0.834: "83 %", 1: "100 %", 0.004: "0.4 %", 0.0001: "0 %", -0.031: "−3 %", -0.00001: "0 %", math.NaN(): "–",
	} {
		if got := Percent(f); got != want {
			t.Errorf("Percent(%v) = %q, want %q", f, got, want)
		}
	}
	if got := Range(0.79, 0.871); got != "79–87" {
		t.Errorf("Range = %q", got)
	}
}

func TestRatioAndCount(t *testing.T) {
	for x, want := range map[float64]string{0.821: "0.82", 1: "1.0", 14.2: "14", 9.96: "10", 12345: "12\u202f345", math.NaN(): "–"} {
		if got := Ratio(x); got != want {
			t.Errorf("Ratio(%v) = %q, want %q", x, got, want)
		}
	}
	for n, want := range map[int]string{7: "7", 999: "999", 4777: "4\u202f777", 1234567: "1\u202f234\u202f567", -1000: "−1\u202f000"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Plural(1, "trace") + ", " + Plural(2, "span"); got != "1 trace, 2 spans" {
		t.Errorf("Plural = %q", got)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "512MiB": 512 << 20, "2GiB": 2 << 30, "1.5GiB": 3 << 29, "4KB": 4000, "7 M": 7 << 20, "12B": 12,
		"3kB": -1, "-1": -1, "": -1, "x": -1, "NaN": -1, "9999999TiB": -1,
	} {
		if n, ok := ParseBytes(text); ok != (want >= 0) || (ok && n != want) {
			t.Errorf("%q: %d, %v; want %d", text, n, ok, want)
		}
	}
	for _, n := range []int64{0, 1, 1000, 1 << 10, 512 << 20, 2 << 30, 1 << 50} {
		if back, ok := ParseBytes(Bytes(n)); !ok || back != n {
			t.Errorf("%d is written %q and read back as %d, %v", n, Bytes(n), back, ok)
		}
	}
}
