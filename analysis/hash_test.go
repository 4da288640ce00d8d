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
			t.Errorf("ParseHash(%q) = %v, %v", h, back, err)
		}
	})
	for _, bad := range []string{"", "0", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0"} {
		if h, err := analysis.ParseHash(bad); err == nil || !h.IsZero() {
			t.Errorf("ParseHash(%q) = %v, %v, want an error", bad, h, err)
		}
	}
}

func TestCompareHashes(t *testing.T) {
	if got := (analysis.Hash{Hi: 1}).Compare(analysis.Hash{Lo: 9}); got != 1 {
		t.Errorf("Compare() = %d, want 1", got)
	}
}
