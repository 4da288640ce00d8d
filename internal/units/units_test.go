package units

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFormat checks the rules shared with the web UI.
func TestFormat(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "format.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors map[string]json.RawMessage
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	delete(vectors, "about")
	formats := map[string]func(x float64) string{
		"duration": Nanos, "signed": Signed, "percent": Percent, "share": Share, "percentile": Percentile,
		"ratio": Ratio, "rate": Rate,
		"span": func(ns float64) string {
			if math.IsNaN(ns) {
				return Unknown
			}
			return Span(time.Duration(ns))
		},
		"count": func(x float64) string {
			if math.IsNaN(x) {
				return Unknown
			}
			return Count(int(x))
		},
	}
	for name, list := range vectors {
		format := formats[name]
		if format == nil {
			t.Errorf("no function for %s", name)
			continue
		}
		var cases [][2]any
		if err := json.Unmarshal(list, &cases); err != nil || len(cases) == 0 {
			t.Fatalf("%s: %d cases, %v", name, len(cases), err)
		}
		for _, c := range cases {
			x, known := c[0].(float64)
			if !known {
				x = math.NaN()
			}
			if got := format(x); got != c[1] {
				t.Errorf("%s(%v) = %q, want %q", name, c[0], got, c[1])
			}
		}
	}
	if len(vectors) != len(formats) {
		t.Errorf("vectors for %d functions, want %d", len(vectors), len(formats))
	}
}

// A part is "all" or "none" only if this is exact, and never 0 % or 100 %.
func TestPart(t *testing.T) {
	for _, c := range []struct {
		part float64
		want string
	}{
		{-0.01, "none"},
		{0, "none"},
		{1e-9, "under 1 %"},
		{0.00999, "under 1 %"},
		{0.01, "1 %"},
		{0.035, "3.5 %"},
		{0.5, "50 %"},
		{0.99, "99 %"},
		{0.9901, "over 99 %"},
		{1 - 1e-9, "over 99 %"},
		{1, "all"},
		{1.2, "all"},
		{math.NaN(), Unknown},
	} {
		if got := Part(c.part); got != c.want {
			t.Errorf("%v: %q, want %q", c.part, got, c.want)
		}
	}
	for _, text := range [][2]string{{"under 1 %", "Under 1 %"}, {"12 %", "12 %"}, {Unknown, Unknown}, {"", ""}} {
		if got := Sentence(text[0]); got != text[1] {
			t.Errorf("at the beginning of a sentence: %q, want %q", got, text[1])
		}
	}
}

func TestCoarse(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59900 * time.Millisecond: "59 s", 290 * time.Second: "4 min",
		119 * time.Minute: "119 min", 2 * time.Hour: "2 h", 171 * time.Hour: "7 days",
	} {
		if got := Coarse(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := Left(time.Millisecond); got != "1 s" {
		t.Errorf("a millisecond is left: %q", got)
	}
}

func TestUnknown(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for name, got := range map[string]string{
			"Nanos": Nanos(x), "Signed": Signed(x), "Percent": Percent(x),
			"Share": Share(x), "Ratio": Ratio(x), "Range": Range(x, 0),
		} {
			if got != Unknown {
				t.Errorf("%s(%v) = %q", name, x, got)
			}
		}
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{0.79, 0.871, "79–87"}, {-0.0001, 0.0345, "0–3.5"}, {-0.12, 0, "−12–0"}} {
		if got := Range(c.low, c.high); got != c.want {
			t.Errorf("Range(%v, %v) = %q, want %q", c.low, c.high, got, c.want)
		}
	}
}

func TestPlural(t *testing.T) {
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
