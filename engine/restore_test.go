package engine

import (
	"errors"
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// stateWith returns the state of c after change has changed its last section, which is a savedCore.
func stateWith(c *Core, change func(*savedCore)) []byte {
	state := c.AppendState(nil)
	r := codec.NewReader(state)
	r.Byte()
	for range 5 {
		r.Section()
	}
	s := c.saved()
	change(s)
	return codec.AppendSection(state[:len(state)-r.Len()], func(b []byte) []byte { return plain.Append(b, s) })
}

// Restoring fails if the simple part of a state has values out of range.
func TestRestoreRefuses(t *testing.T) {
	c := NewCore(&trace.Table{}, DefaultOptions())
	if err := NewCore(&trace.Table{}, DefaultOptions()).Restore(stateWith(c, func(*savedCore) {})); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
	announced := func(tp cct.Tracepoint) func(*savedCore) {
		return func(s *savedCore) { s.Heard.Services = []savedService{{Tracepoints: []cct.Tracepoint{tp}}} }
	}
	for name, change := range map[string]func(*savedCore){
		"unknown kind":            func(s *savedCore) { s.Problems = []detect.Problem{{Kind: 3}} },
		"unknown onset":           func(s *savedCore) { s.Problems = []detect.Problem{{Onset: 2}} },
		"unknown level":           func(s *savedCore) { s.Problems = []detect.Problem{{Level: 2}} },
		"unknown layer":           announced(cct.Tracepoint{Layer: 3}),
		"unknown tracepoint kind": announced(cct.Tracepoint{Kind: 3}),
		"epoch beyond its core":   func(s *savedCore) { s.Epochs = []savedMark{{Seen: 1}} },
		"no plan":                 func(s *savedCore) { s.Plans = nil },
		"cost of NaN":             func(s *savedCore) { s.Heard.Measured = search.Measured{CPU: math.NaN()} },
		"damaged tree":            func(s *savedCore) { s.Trees = []savedPart{{Data: []byte{7}}} },
		"damaged sample":          func(s *savedCore) { s.Samples = []savedSample{{Sample: []byte{7}}} },
		"damaged spans":           func(s *savedCore) { s.Spans = []byte{7} },
	} {
		err := NewCore(&trace.Table{}, DefaultOptions()).Restore(stateWith(c, change))
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v, want %v", name, err, codec.ErrCorrupt)
		}
	}
}
