package engine

import (
	"bytes"
	"encoding/gob"
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

// stateWith returns the state of c with its last section, the small and plain part, changed.
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

// Settings that version 3 of the store wrote, as gob, are read.
func TestDecodeSavedGob(t *testing.T) {
	type tests struct{ Margin, Doubt float64 }
	type watch struct{ Tests tests }
	type settings struct{ Watch watch }
	old := struct {
		Settings *settings
		Plans    []savedPlan
	}{&settings{watch{tests{0.07, 0.01}}}, []savedPlan{{Version: 1}}}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(old); err != nil {
		t.Fatal(err)
	}
	s, err := decodeSaved(b.Bytes(), coreWithGob)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Settings.Watch.Tests; got.Margin != 0.07 || got.Alpha != 0.01 {
		t.Errorf("tests %+v, want a margin of 0.07 and an alpha of 0.01", got)
	}
}

// Values out of range in the plain part of a state are errors.
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
		if err := NewCore(&trace.Table{}, DefaultOptions()).Restore(stateWith(c, change)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v, want %v", name, err, codec.ErrCorrupt)
		}
	}
}
