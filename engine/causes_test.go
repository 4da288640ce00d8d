package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// An investigation that located a place ends with the variable that explains it: a tenant or a size, which are captured
// for it, or a host, which is always recorded. Without such a variable it ends with the place.
func TestExplained(t *testing.T) {
	for _, c := range []struct {
		seed  uint64
		fault sim.Fault
		want  string // variable; empty if nothing explains the place
	}{
		{1, sim.Attribute, "tenant"},
		{0, sim.Payload, "payload.size"},
		{0, sim.Host, "host.name"},
		{0, sim.SlowPath, ""},
	} {
		options := engine.DefaultOptions()
		options.Learning = 2 * time.Minute
		w := newWorld(small(c.seed, c.fault), options)
		w.until(3 * time.Minute)
		w.app.Inject(w.now)
		reasons := make(map[search.Status]string)
		for w.now < start.Add(8*time.Minute) {
			w.play()
			for _, v := range w.core.View().Searches.State().Investigations {
				reasons[v.Status] = v.Reason
			}
		}
		_, located := reasons[search.Located]
		why, explained := reasons[search.Explained]
		if !located || explained != (c.want != "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: reasons %v, want an explanation by %q", c.fault, reasons, c.want)
		}
	}
}

// At most four problems are explained per epoch. The others follow in the next epochs.
func TestExplainedAtOnce(t *testing.T) {
	const types, atOnce = 10, 4
	core := newSlowCore(types)
	now, explained := start, 0
	for range 10 {
		for requestType := range types {
			for i := range 50 {
				core.Observe(requests.Plain(requestType, 0, now+trace.Nanos(i), time.Second), nil)
			}
		}
		now = now.Add(core.View().Options.Epoch)
		core.Epoch(now)
		before := explained
		explained = 0
		for _, p := range core.View().Problems.Open() {
			if core.View().Problems.Findings(p.ID) != nil {
				explained++
			}
		}
		if explained-before > atOnce {
			t.Errorf("%d problems explained in an epoch, want at most %d", explained-before, atOnce)
		}
	}
	if explained != types {
		t.Errorf("%d problems are explained, want %d", explained, types)
	}
}

// newSlowCore returns a core that learns for one epoch. Request types of [requests.Plain] with a number below types
// miss their objectives.
func newSlowCore(types int) *engine.Core {
	options := engine.DefaultOptions()
	options.Learning = options.Epoch
	options.Watch.Chronic = detect.Thresholds{Objectives: make(map[trace.Op]time.Duration)}
	for requestType := range types {
		options.Watch.Chronic.Objectives[requests.Plain(requestType, 0, 0, 0).Entry] = 1
	}
	return engine.NewCore(&trace.Table{}, options)
}
