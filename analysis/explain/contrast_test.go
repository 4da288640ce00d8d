package explain

import (
	"fmt"
	"testing"
)

// hosts makes requests on several hosts; on one the db is slower by a factor.
func hosts(seed uint64, n, count int, slow string, factor float64) *world {
	w := newWorld(seed)
	for range n {
		host := fmt.Sprint("host", w.IntN(count))
		db := 20 * w.heavy(0.5)
		if host == slow {
			db *= factor
		}
		o := w.request(10*w.heavy(0.5), db, 10*w.heavy(0.5))
		w.text(o, w.get, "host.name", "front")
		w.text(o, w.db, "host.name", host)
	}
	return w
}

func (w *world) contrast(by ContrastBy) []Contrasted {
	p := w.problem()
	for i := range p.Edges {
		p.Edges[i].Mean = p.Edges[i].Score
	}
	return Contrast(p, w.requests, by, w.table, Options{})
}

// The slow host is found, with the edge that is slow there and by how much; no other host or edge is.
func TestContrast(t *testing.T) {
	for n, want := range map[int]int{48: 10, 256: 19} {
		found, covered := 0, 0
		for seed := range uint64(20) {
			w := hosts(seed, n, 4, "host2", 3)
			got := w.contrast(ContrastBy{Key: w.table.Symbol("host.name"), Context: w.db})
			if len(got) != 1 || got[0].Value != "host2" || len(got[0].Edges) != 1 || got[0].Edges[0].Edge != w.edgeDB {
				continue
			}
			found++
			// 20 ms · e^(0.5²/2) · 2 more.
			if d := got[0].Edges[0]; d.Low < 45.3e6 && 45.3e6 < d.High {
				covered++
			}
		}
		if found < want || covered < found*8/10 {
			t.Errorf("%d requests: found in %d of 20 cases, want %d; the true difference was in the interval in %d", n, found, want, covered)
		}
	}
}

func TestContrastNothing(t *testing.T) {
	named := 0
	for seed := range uint64(40) {
		w := hosts(seed, 256, 6, "", 1)
		named += len(w.contrast(ContrastBy{Key: w.table.Symbol("host.name"), Context: w.db}))
	}
	if named > 2 {
		t.Errorf("of 40 samples without a slow host %d had one", named)
	}
	w := hosts(1, 256, 4, "host2", 3)
	if got := w.contrast(ContrastBy{Key: w.table.Symbol("host.name")}); got != nil {
		t.Errorf("all requests came in at one host, but these differ: %v", got)
	}
	if got := w.contrast(ContrastBy{Key: w.table.Symbol("unknown")}); got != nil {
		t.Errorf("by an attribute that no request has, these differ: %v", got)
	}
}
