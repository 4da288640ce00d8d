package group_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkGroupObserve adds requests to both levels. They are distinct and belong to many groups, so that caches are
// as cold as in production.
func BenchmarkGroupObserve(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d groups", groups), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var all []*observation.Observation
			for i := range max(2000, groups) {
				all = append(all, requests.Edged(r, i%groups/10, i%groups))
			}
			g := group.NewGrouper(&group.RequestTypes{}, &trace.Table{}, group.Options{})
			for _, o := range all {
				g.Observe(o)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o := all[i%len(all)]
				o.Root++
				g.Observe(o)
				i++
			}
		})
	}
}
