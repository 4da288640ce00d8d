package explain

import (
	"fmt"
	"testing"
)

// hosts generates requests on several hosts, with a slower db on one.
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

// Contrast finds the slow host with its slow edge and the difference, and no other host or edge.
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
			t.Errorf("%d requests: found in %d of 20 samples, want %d; %d intervals cover the difference",
				n, found, want, covered)
		}
	}
}

func TestContrastNothing(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		w := hosts(seed, 256, 6, "", 1)
		found += len(w.contrast(ContrastBy{Key: w.table.Symbol("host.name"), Context: w.db}))
	}
	if found > 2 {
		t.Errorf("%d slow hosts in 40 samples without one, want at most 2", found)
	}
	w := hosts(1, 256, 4, "host2", 3)
	if got := w.contrast(ContrastBy{Key: w.table.Symbol("host.name")}); got != nil {
		t.Errorf("contrasts %v of a single host, want none", got)
	}
	if got := w.contrast(ContrastBy{Key: w.table.Symbol("unknown")}); got != nil {
		t.Errorf("contrasts %v by an unknown attribute, want none", got)
	}
}
