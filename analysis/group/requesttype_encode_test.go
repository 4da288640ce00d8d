package group_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

func restartedTypes(t interface{ Fatal(...any) }, r *group.RequestTypes) *group.RequestTypes {
	b := r.AppendBinary(nil)
	again, rest, err := group.DecodeRequestTypes(b, r.Rules)
	if err != nil || len(rest) > 0 || !bytes.Equal(again.AppendBinary(nil), b) {
		t.Fatal("request types change when decoded: ", err)
	}
	return again
}

// Request types that are restarted while they learn, or later, continue unchanged.
func TestRequestTypesRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawEntryRequests(t)
		half := len(all) / 2
		plain, again := &group.RequestTypes{}, &group.RequestTypes{}
		for i, o := range all {
			plain.Learn(o)
			again.Learn(o)
			if i == half {
				again = restartedTypes(t, again)
			}
		}
		plain.Freeze()
		again.Freeze()
		for range 2 {
			for _, o := range all {
				if plain.Of(o) != again.Of(o) {
					t.Fatalf("%v has type %v, and %v after a restart", o.Children, plain.Of(o), again.Of(o))
				}
			}
			again = restartedTypes(t, again)
		}
		if !bytes.Equal(plain.AppendBinary(nil), again.AppendBinary(nil)) {
			t.Error("the encodings differ after a restart")
		}
	})
}

// Request types that learned more sets of children than the bound are decoded, whichever set came last.
func TestManyChildSetsRestart(t *testing.T) {
	for first := range trace.Op(4) {
		var r group.RequestTypes
		for i := range trace.Op(8200) {
			r.Learn(&observation.Observation{Entry: 1, Children: []trace.Op{1 + first*10_000 + i}})
			if i == 8191 { // the first one beyond the bound
				restartedTypes(t, &r)
			}
		}
	}
}

func FuzzDecodeRequestTypes(f *testing.F) {
	var r group.RequestTypes
	for i := range 20 {
		r.Learn(&observation.Observation{Entry: trace.Op(1 + i%2), Children: []trace.Op{trace.Op(i), trace.Op(i + 1)}})
	}
	f.Add(r.AppendBinary(nil))
	r.Freeze()
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := group.DecodeRequestTypes(b, nil)
		if err != nil {
			if r != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		if !bytes.Equal(r.AppendBinary(nil), b[:len(b)-len(rest)]) {
			t.Error("the encoding differs after decoding")
		}
		o := &observation.Observation{Entry: 1, Children: []trace.Op{1, 2}}
		r.Learn(o)
		r.Freeze()
		r.Distinct(1, r.Of(o), 3)
	})
}
