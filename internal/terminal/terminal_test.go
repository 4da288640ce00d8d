package terminal

import (
	"bytes"
	"strings"
	"testing"
)

func TestBar(t *testing.T) {
	for f, want := range map[float64]string{0: "    ", -1: "    ", 0.25: "█   ", 0.28: "█▏  ", 0.5: "██  ", 2: "████"} {
		if got := Bar(f, 4); got != want {
			t.Errorf("Bar(%v, 4) = %q, want %q", f, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		s     string
		width int
		want  string
	}{
		{"abcdefgh", 8, "abcdefgh"},
		{"abcdefgh", 7, "abc…fgh"},
		{"äöüäöü", 5, "äö…öü"},
		{"abc", 2, "abc"},
		{"注文サービス", 12, "注文サービス"},
		{"注文サービス", 8, "注…ビス"},
		{"注文サービス", 7, "注…ビス"},
		{"注文サービス", 6, "注…ス"},
		{"🛒🛒🛒", 5, "🛒…🛒"},
		{"cafe\u0301 noir", 9, "cafe\u0301 noir"},
	} {
		if got := Shorten(c.s, c.width); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.s, c.width, got, c.want)
		}
	}
}

// Columns line up for names in any script.
func TestWidth(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "shop": 4, "4\u202f777": 5, "äöü": 3, "注文サービス": 12, "한국": 4,
		"🛒": 2, "❤️": 2, "👩‍👩‍👧": 2, "cafe\u0301": 4, "…·–█": 4,
	} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
		if left, right := Width(PadLeft(s, 20)), Width(PadRight(s, 20)); left != 20 || right != 20 {
			t.Errorf("%q is padded to %d and %d columns", s, left, right)
		}
		for width := 3; width < 20; width++ {
			if got := Shorten(s, width); Width(got) > width {
				t.Errorf("Shorten(%q, %d) = %q, with %d columns", s, width, got, Width(got))
			}
		}
	}
	got := (Style{Width: 1}).Wrap(strings.Repeat("注文 ", 13), 2)
	if want := "  " + strings.TrimSpace(strings.Repeat("注文 ", 11)) + "\n  注文 注文\n"; got != want {
		t.Errorf("Wrap = %q, want %q", got, want)
	}
}

func TestOf(t *testing.T) {
	columns := func(name string) string { return map[string]string{"COLUMNS": "77"}[name] }
	if got, want := Of(&bytes.Buffer{}, columns), (Style{Width: 77}); got != want {
		t.Errorf("a pipe: %+v, want %+v", got, want)
	}
	if got := Printable("a\x1b[2J\nb\u202e"); got != "a·[2J·b·" {
		t.Errorf("Printable = %q", got)
	}
}

// A number stays on the line of its unit. A number at the end of a clause, or before another number, need not.
func TestWrapKeepsUnits(t *testing.T) {
	const text = "92 % of it is time in and from the service frontend (in it 76 %, from it 16 %); " +
		"3.5 ms longer than in 1 2 3 4 5 6 of 10, 20, 30 to"
	for width := 60; width < 130; width++ {
		for line := range strings.Lines(Style{Width: width}.Wrap(text, 2)) {
			if Width(strings.TrimRight(line, "\n")) > width {
				t.Errorf("width %d: long line %q", width, line)
			}
			last := line[strings.LastIndexByte(strings.TrimRight(line, "\n"), ' ')+1:]
			if n := strings.TrimSpace(last); n == "92" || n == "76" || n == "16" || n == "3.5" {
				t.Errorf("width %d: %q is parted from its unit", width, n)
			}
		}
	}
}
