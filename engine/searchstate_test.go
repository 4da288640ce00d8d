package engine_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
)

// Bytes that hold no state, and states with values out of range, are errors.
func TestDecodeSearchStateRefuses(t *testing.T) {
	valid := engine.AppendSearchState(nil, &search.State{})
	for name, b := range map[string]string{
		"empty": "", "unknown version": "\x03{}", "no JSON": "\x01", "two values": "\x01{} {}", "no CBOR": "\x02",
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
		"infinite value":          {Investigations: []search.Investigation{{Requested: []search.TracepointRequest{{Value: math.Inf(-1)}}}}},
		"evidence of NaN":         {Investigations: []search.Investigation{{Evidence: []search.Evidence{{Low: math.NaN()}}}}},
		"suspect of NaN":          {Investigations: []search.Investigation{{Suspects: []search.Suspect{{Share: math.NaN()}}}}},
		"unknown override":        {Overrides: []search.Override{{Kind: 3}}},
		"overrun of NaN":          {Overrun: search.Overrun{CPU: math.NaN()}},
	} {
		if _, err := engine.DecodeSearchState(engine.AppendSearchState(nil, &s)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v, want %v", name, err, codec.ErrCorrupt)
		}
	}
}

// A state that version 4 of the store wrote, in JSON with its own names, is read, and written as CBOR with the same
// names.
func TestDecodeSearchStateOfACheckpoint(t *testing.T) {
	const text = "\x01" + `{"Plan":{"Version":3,"Arms":[{"Name":1,"Share":0.5,"Everything":false}],"Leases":[{"Tracepoint":7,"Arm":0,"Owner":{"Hi":1,"Lo":0},` +
		`"Cause":"","Since":0,"Expires":0,"Pinned":false}]},"Investigations":[{"Problem":{"Hi":1,"Lo":0},"RequestType":{"Hi":0,"Lo":0},"Group":{"Hi":0,"Lo":0},` +
		`"Entry":0,"Status":1,"Reason":"","Opened":0,"Changed":0,"Epochs":0,"Missed":0,"Idle":0,"Starved":2,"Strategy":"","Lead":0,"Score":0,"Verified":0,` +
		`"Wants":[{"Tracepoint":7,"Arms":1,"Since":0,"Epoch":0,"Value":0,"Need":0,"Cause":""}],"Evidence":null,"Tried":null,"Suspects":null}],` +
		`"Silences":[{"Problem":{"Hi":1,"Lo":0},"Tracepoint":9,"Until":4}],"Wishes":[{"Tracepoint":8,"Kind":2,"Forced":false,"Until":0,"By":"someone"}],` +
		`"Overrun":{"Bytes":0,"CPU":0}}`
	s, err := engine.DecodeSearchState([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Overrides) != 1 || len(s.Cooldowns) != 1 || len(s.Investigations[0].Requested) != 1 || s.Investigations[0].BudgetStarved != 2 {
		t.Errorf("%+v", s)
	}
	b := engine.AppendSearchState(nil, &s)
	for _, name := range []string{"Wishes", "Silences", "Wants", "Starved"} {
		if !bytes.Contains(b, []byte(name)) {
			t.Errorf("field %s is missing in %q", name, b)
		}
	}
	again, err := engine.DecodeSearchState(b)
	if diff := cmp.Diff(s, again); err != nil || diff != "" {
		t.Errorf("written again: error %v, %s", err, diff)
	}
}
