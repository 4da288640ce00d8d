package engine_test

import (
	"errors"
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
)

// Decoding fails if the bytes hold no state, or a state with values out of range.
func TestDecodeSearchStateRefuses(t *testing.T) {
	valid := engine.AppendSearchState(nil, &search.State{})
	for name, b := range map[string]string{
		"empty": "", "unknown version": "\x02" + string(valid[1:]), "no CBOR": "\x01",
		"truncated": string(valid[:len(valid)-1]), "bytes behind": string(valid) + "\x00",
	} {
		if _, err := engine.DecodeSearchState([]byte(b)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v, want %v", name, err, codec.ErrCorrupt)
		}
	}
	for name, s := range map[string]search.State{
		"lease without arm":       {Plan: search.Plan{Leases: []search.Lease{{}}}},
		"arm with infinite share": {Plan: search.Plan{Arms: []search.Arm{{Share: math.Inf(1)}}}},
		"unknown status":          {Investigations: []search.Investigation{{Status: 200}}},
		"negative epochs":         {Investigations: []search.Investigation{{Epochs: -1}}},
		"infinite value": {
			Investigations: []search.Investigation{{Requested: []search.TracepointRequest{{Value: math.Inf(-1)}}}},
		},
		"evidence of NaN":  {Investigations: []search.Investigation{{Evidence: []search.Evidence{{Low: math.NaN()}}}}},
		"suspect of NaN":   {Investigations: []search.Investigation{{Suspects: []search.Suspect{{Share: math.NaN()}}}}},
		"unknown override": {Overrides: []search.Override{{Kind: 3}}},
		"overrun of NaN":   {Overrun: search.Overrun{CPU: math.NaN()}},
	} {
		if _, err := engine.DecodeSearchState(engine.AppendSearchState(nil, &s)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v, want %v", name, err, codec.ErrCorrupt)
		}
	}
}
