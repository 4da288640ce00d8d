package detect_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// A Refinement continues unchanged after a restart.
func TestRefinementRestarts(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		random := rand.New(rand.NewPCG(1, 2))
		plain := detect.NewRefinement(7, []trace.Symbol{fPoint, gPoint, unused})
		again := detect.NewRefinement(7, []trace.Symbol{fPoint, gPoint, unused})
		for i := range uint64(200) {
			o := refinedRequest(i, 1000, random.Int64N(100), int64(i%3)*random.Int64N(1000))
			plain.Observe(o, coarse)
			again.Observe(o, coarse)
			if i%50 == 7 {
				decoded, rest, err := detect.DecodeRefinement(again.AppendBinary(nil))
				if err != nil || len(rest) > 0 {
					t.Fatal(err)
				}
				again = decoded
			}
		}
		if diff := cmp.Diff(plain.Shares(), again.Shares(), cmpopts.EquateNaNs()); diff != "" ||
			!bytes.Equal(plain.AppendBinary(nil), again.AppendBinary(nil)) {
			t.Error(diff)
		}
	}
}

func FuzzDecodeRefinement(f *testing.F) {
	r := detect.NewRefinement(7, []trace.Symbol{fPoint, unused})
	f.Add(r.AppendBinary(nil))
	for i := range uint64(30) {
		r.Observe(refinedRequest(i, 1000, int64(i), int64(i%3)), false)
	}
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := detect.DecodeRefinement(b)
		if err != nil {
			if r != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		if !bytes.Equal(r.AppendBinary(nil), b[:len(b)-len(rest)]) {
			t.Error("the encoding differs after decoding")
		}
		r.Observe(refinedRequest(1, 1, 2, 3), true)
		r.Shares()
	})
}
