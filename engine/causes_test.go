package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// An investigation that located a place ends with the variable that explains it: a tenant and a size that are captured
// for it, and a host that is always recorded. Without such a variable it ends with the place.
func TestExplained(t *testing.T) {
	for _, c := range []struct {
		seed  uint64
		fault sim.Fault
		want  string // variable; "": none
	}{
		{1, sim.Attribute, "tenant"}, {0, sim.Payload, "payload.size"}, {0, sim.Host, "host.name"}, {0, sim.SlowPath, ""},
	} {
		options := engine.DefaultOptions()
		options.Learning = 2 * time.Minute
		w := newWorld(small(c.seed, c.fault), options)
		w.until(3 * time.Minute)
		w.app.Inject(w.now)
		reasons := make(map[search.Status]string)
		for w.now < start.Add(8*time.Minute) {
			w.play()
			for _, v := range w.core.State().Investigations {
				reasons[v.Status] = v.Reason
			}
		}
		_, located := reasons[search.Located]
		why, explained := reasons[search.Explained]
		if !located || explained != (c.want != "") || !strings.HasPrefix(why, c.want) {
			t.Errorf("%s: reasons %v, want an explanation by %q", c.fault, reasons, c.want)
		}
	}
}
