package analysis_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
)

func TestParseHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := analysis.Hash{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")}
		if back, err := analysis.ParseHash(h.String()); err != nil || back != h {
			t.Errorf("ParseHash(%q) = %v, %v, want the hash itself", h.String(), back, err)
		}
	})
	for _, bad := range []string{"", "0", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0"} {
		if h, err := analysis.ParseHash(bad); err == nil || !h.IsZero() {
			t.Errorf("ParseHash(%q) = %v, %v, want the zero Hash and an error", bad, h, err)
		}
	}
	if c := (analysis.Hash{Hi: 1}).Compare(analysis.Hash{Lo: 9}); c != 1 {
		t.Errorf("{Hi: 1} compared with {Lo: 9} is %d, want 1", c)
	}
}
