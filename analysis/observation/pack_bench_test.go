package observation_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// manyRequests returns requests of 20 edges each, some with variables, similar to those in a log of the learning
// period.
func manyRequests() (all []*observation.Observation) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 1000 {
		o := requests.Edged(r, i%10, i%50)
		o.Start += 1_700_000_000_000_000_000
		o.Children = []trace.Op{1, 2, 3}
		for k := range i % 4 {
			o.Variables = append(o.Variables, observation.Variable{
				Context: o.Contexts[0].Context, Key: trace.Symbol(k + 1), Text: trace.Symbol(r.Uint64()),
			})
		}
		all = append(all, o)
	}
	return all
}

// An operation is one request.
func BenchmarkPackerAppend(b *testing.B) {
	all := manyRequests()
	var p observation.Packer
	var buf []byte
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Append(buf[:0], all[i%len(all)])
		i++
	}
}

// An operation is one request.
func BenchmarkPackerUnpack(b *testing.B) {
	var p observation.Packer
	var packed []byte
	for _, o := range manyRequests() {
		packed = p.Append(packed, o)
	}
	var o observation.Observation
	rest := packed
	b.ReportAllocs()
	for b.Loop() {
		if len(rest) == 0 {
			rest = packed
		}
		var err error
		if rest, err = p.Unpack(rest, &o); err != nil {
			b.Fatal(err)
		}
	}
}
