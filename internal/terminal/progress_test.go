package terminal

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// A progress line is drawn in one place, not more often than people see, and disappears without a trace.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, "sending", func(n int64) string { return units.Count(int(n)) })
		p.Clear() // nothing is drawn yet
		for i := range int64(1000) {
			p.Set(i, 4000)
			time.Sleep(10 * time.Millisecond)
		}
		p.Clear()
		lines := strings.Split(out.String(), "\r"+eraseLine)
		if len(lines) != 102 || lines[0] != "" || lines[101] != "" {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		if want := "sending " + Bar(990./4000, barWidth) + " 990 of 4,000, 31 s left"; lines[100] != want {
			t.Errorf("got %q, want %q", lines[100], want)
		}
		out.Reset()
		if p.Set(5, 0); out.String() != "\r"+eraseLine+"sending 5" {
			t.Errorf("unknown total: %q", out.String())
		}
	})
}
