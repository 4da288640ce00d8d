package server

import (
	"math"
	"testing"
)

// Every part gets files at any limit. The parts together stay within the limit, and 10 000 agents fit into 20 000
// files.
func TestDivideFiles(t *testing.T) {
	for _, all := range []uint64{256, 400, 1024, 4096, 20_000, 65_536, 1 << 30, math.MaxUint64} {
		f := divideFiles(all, 1)
		sum := 2*f.database + f.agents + otherAddresses*f.others
		if f.agents < f.others || f.others < 1 || f.database < 0 || uint64(sum) > all ||
			all < 20_000 && uint64(sum+needed) < all-2 {
			t.Errorf("%d files: got %+v, together %d", all, f, sum)
		}
		if all >= 20_000 && (f.agents < 11_000 || f.agents > mostAgents || f.others != mostOthers) {
			t.Errorf("%d files: got %+v", all, f)
		}
	}
	if f := divideFiles(65_536, mostTenants); f.database < leastDatabase || f.agents > mostAgents {
		t.Errorf("%d tenants: got %+v", mostTenants, f)
	}
}
