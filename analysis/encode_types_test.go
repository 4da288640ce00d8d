package analysis_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

func restartedTypes(t interface{ Fatal(...any) }, r *analysis.RequestTypes) *analysis.RequestTypes {
	b := r.AppendBinary(nil)
	again, rest, err := analysis.DecodeRequestTypes(b, r.Rules)
	if err != nil || len(rest) > 0 || !bytes.Equal(again.AppendBinary(nil), b) {
		t.Fatal("request types are read back otherwise: ", err)
	}
	return again
}

// Request types that are written and read back, while they are learned or later, go on as they would have.
func TestRequestTypesRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawEntryRequests(t)
		half := len(all) / 2
		plain, again := &analysis.RequestTypes{}, &analysis.RequestTypes{}
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
					t.Fatalf("%v is of type %v, and of %v after a restart", o.Children, plain.Of(o), again.Of(o))
				}
			}
			again = restartedTypes(t, again)
		}
		if !bytes.Equal(plain.AppendBinary(nil), again.AppendBinary(nil)) {
			t.Error("their bytes differ")
		}
	})
}

// Also those that learned more sets of children than fit are read back, whichever set came when there was no room.
func TestManyChildSetsRestart(t *testing.T) {
	for first := range trace.Op(4) {
		var r analysis.RequestTypes
		for i := range trace.Op(8200) {
			r.Learn(&analysis.Observation{Entry: 1, Children: []trace.Op{1 + first*10_000 + i}})
			if i == 8191 { // the first one without room
				restartedTypes(t, &r)
			}
		}
	}
}

func FuzzDecodeRequestTypes(f *testing.F) {
	var r analysis.RequestTypes
	for i := range 20 {
		r.Learn(&analysis.Observation{Entry: trace.Op(1 + i%2), Children: []trace.Op{trace.Op(i), trace.Op(i + 1)}})
	}
	f.Add(r.AppendBinary(nil))
	r.Freeze()
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := analysis.DecodeRequestTypes(b, nil)
		if err != nil {
			if r != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		if !bytes.Equal(r.AppendBinary(nil), b[:len(b)-len(rest)]) {
			t.Error("another encoding of the same")
		}
		o := &analysis.Observation{Entry: 1, Children: []trace.Op{1, 2}}
		r.Learn(o)
		r.Freeze()
		r.Distinct(1, r.Of(o), 3)
	})
}

// A Refinement that is written and read back goes on as it would have.
func TestRefinementRestarts(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		random := rand.New(rand.NewPCG(1, 2))
		plain := analysis.NewRefinement(7, []trace.Symbol{fPoint, gPoint, unused})
		again := analysis.NewRefinement(7, []trace.Symbol{fPoint, gPoint, unused})
		for i := range uint64(200) {
			o := refinedRequest(i, 1000, random.Int64N(100), int64(i%3)*random.Int64N(1000))
			plain.Observe(o, coarse)
			again.Observe(o, coarse)
			if i%50 == 7 {
				decoded, rest, err := analysis.DecodeRefinement(again.AppendBinary(nil))
				if err != nil || len(rest) > 0 {
					t.Fatal(err)
				}
				again = decoded
			}
		}
		if diff := cmp.Diff(plain.Shares(), again.Shares(), cmpopts.EquateNaNs()); diff != "" || !bytes.Equal(plain.AppendBinary(nil), again.AppendBinary(nil)) {
			t.Error(diff)
		}
	}
}

func FuzzDecodeRefinement(f *testing.F) {
	r := analysis.NewRefinement(7, []trace.Symbol{fPoint, unused})
	f.Add(r.AppendBinary(nil))
	for i := range uint64(30) {
		r.Observe(refinedRequest(i, 1000, int64(i), int64(i%3)), false)
	}
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := analysis.DecodeRefinement(b)
		if err != nil {
			if r != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		if !bytes.Equal(r.AppendBinary(nil), b[:len(b)-len(rest)]) {
			t.Error("another encoding of the same")
		}
		r.Observe(refinedRequest(1, 1, 2, 3), true)
		r.Shares()
	})
}
