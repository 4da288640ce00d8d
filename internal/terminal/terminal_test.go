package terminal

import (
	"bytes"
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
	}{{"abcdefgh", 8, "abcdefgh"}, {"abcdefgh", 7, "abc…fgh"}, {"äöüäöü", 5, "äö…öü"}, {"abc", 2, "abc"}} {
		if got := Shorten(c.s, c.width); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.s, c.width, got, c.want)
		}
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
