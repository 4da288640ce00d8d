package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// rollouts is a world after a learning period with version 1 of the service shop.
type rollouts struct {
	*world
	t testing.TB
}

func newRollouts(t testing.TB, config engine.Options) *rollouts {
	t.Helper()
	config.Learning = 20 * time.Second
	r := &rollouts{newWorld(small(3, sim.None), config), t}
	r.run("shop", "1")
	for !r.core.View().Progress.Learned() {
		r.play()
	}
	return r
}

// run adds spans of versions of service.
func (r *rollouts) run(service string, versions ...string) {
	var seen []engine.VersionSeen
	for _, v := range versions {
		seen = append(seen, r.seen(r.now, service, v))
	}
	r.core.ObserveVersions(seen)
}

func (r *rollouts) seen(at trace.Nanos, service, version string) engine.VersionSeen {
	x := ingest.ServiceVersion{
		Service: r.core.View().Table.Symbol(service),
		Version: r.core.View().Table.Symbol(version),
	}
	return engine.VersionSeen{ServiceVersion: x, First: at, Last: at}
}

// deploys formats the deploys as text.
func (r *rollouts) deploys() string {
	var all []string
	for _, d := range r.core.View().Annotations {
		text := r.core.View().Table.Text
		all = append(all,
			fmt.Sprintf("%s %s after %s at %v", text(d.Service), text(d.Version), text(d.Before), d.At.Sub(start)))
	}
	return strings.Join(all, "; ")
}

// The first appearance of a version is one deploy if the learning period is over and the service had another version.
// The other version may continue to run.
func TestDeploys(t *testing.T) {
	options := engine.DefaultOptions()
	r := newRollouts(t, options)
	r.run("shop", "1")
	r.run("bank", "7") // the first known version
	if got := r.deploys(); got != "" {
		t.Errorf("deploys %s, want none", got)
	}
	r.play()
	r.run("shop", "1", "2")
	r.core = r.again(t, options)
	r.run("shop", "1", "2")
	r.play()
	r.run("shop", "1", "2", "3")
	r.run("bank", "8")
	r.play()
	r.run("bank", "9")
	r.run("shop", "4", "5") // they arrive together, so neither precedes the other
	want := "shop 2 after 1 at 30s; shop 3 after 2 at 40s; bank 8 after 7 at 40s; bank 9 after 8 at 50s; " +
		"shop 5 after 3 at 50s; shop 4 after 3 at 50s"
	if got := r.deploys(); got != want {
		t.Errorf("deploys %s, want %s", got, want)
	}
}

// A new version in a recorded past that arrives at once is a deploy, even before anything is learned, if it started
// long after the first version.
func TestDeployInPast(t *testing.T) {
	options := engine.DefaultOptions()
	options.Learning = 20 * time.Second
	r := &rollouts{newWorld(small(3, sim.None), options), t}
	r.core.ObserveVersions([]engine.VersionSeen{
		r.seen(r.now.Add(-time.Second), "shop", "2"), r.seen(r.now.Add(-time.Minute), "shop", "1"),
		r.seen(r.now.Add(-50*time.Second), "shop", "1.1"),
	})
	if got, want := r.deploys(), "shop 2 after 1.1 at "+r.now.Add(-time.Second).Sub(start).String(); got != want {
		t.Errorf("deploys %s, want %s", got, want)
	}
}

// The number of versions is limited. The core keeps the most recent ones, no matter how they are divided among calls.
func TestVersionsAreBounded(t *testing.T) {
	options := engine.DefaultOptions()
	var states []string
	for _, parts := range []int{1, 7} {
		r := newRollouts(t, options)
		for epoch := range 4 {
			var flood []engine.VersionSeen
			for i := range 5000 {
				flood = append(flood, r.seen(r.now.Add(time.Duration(i)), "flood", fmt.Sprint(epoch, "-", i)))
			}
			for part := range slices.Chunk(flood, len(flood)/parts) {
				r.run("shop", "1")
				r.core.ObserveVersions(part)
			}
			r.core.ObserveVersions([]engine.VersionSeen{r.seen(r.now.Add(time.Second), "shop", "1")})
			if n := engine.Versions(r.core); n <= 4096 || n > 8192 {
				t.Errorf("%d versions before the end of the epoch, want 4097 to 8192", n)
			}
			if r.play(); engine.Versions(r.core) != 4096 {
				t.Errorf("%d versions after the epoch, want 4096", engine.Versions(r.core))
			}
		}
		if n := len(r.core.View().Annotations); n != 1000 {
			t.Errorf("%d deploys, want 1000", n)
		}
		r.run("shop", "1", "2")
		d := r.core.View().Annotations[999]
		if d.Service != trace.SymbolOf([]byte("shop")) || d.Version != trace.SymbolOf([]byte("2")) ||
			d.Before != trace.SymbolOf([]byte("1")) {
			t.Errorf("last deploy %+v, want version 2 of shop after 1", d)
		}
		states = append(states, string(r.core.AppendState(nil)))
	}
	if states[0] != states[1] {
		t.Error("the states differ")
	}
}

// A change of the first suspect after the opening isn't the cause, but it may be the fix.
func TestSuspectChange(t *testing.T) {
	const cart, shop, minute = trace.Symbol(1), trace.Symbol(2), trace.Nanos(60e9)
	x := engine.Incident{Incident: incident.Incident{
		Onset:    100 * minute,
		History:  []incident.Transition{{At: 103 * minute}},
		Suspects: []compare.Suspect{{Service: cart, Score: 1}, {Service: shop, Score: 1}},
	}}
	deploy := func(service trace.Symbol, at trace.Nanos) engine.Annotation {
		return engine.Annotation{Service: service, At: at * minute}
	}
	all := []engine.Annotation{deploy(cart, 60), deploy(cart, 80), deploy(shop, 99), deploy(cart, 110)}
	if got := x.SuspectChange(all); got == nil || got.At != all[1].At {
		t.Errorf("got %+v, want the latest before the opening", got)
	}
	if got := x.Annotations(all); len(got) != 3 {
		t.Errorf("got %+v, want all from half an hour before the onset on", got)
	}
	x.Enter(incident.Transition{At: 120 * minute, Why: incident.Returned})
	if got := x.SuspectChange(all); got == nil || got.At != all[3].At {
		t.Errorf("got %+v, want the latest before it opened again", got)
	}
	sale := []engine.Annotation{{Service: cart, At: 118 * minute, Kind: engine.KindOther}}
	if got := x.SuspectChange(sale); got != nil {
		t.Errorf("got %+v, but an event that changes nothing is no cause", got)
	}
	lasting := engine.Annotation{At: 60 * minute, End: 71 * minute}
	if got := x.Annotations([]engine.Annotation{lasting, {At: 71 * minute}, {At: 60 * minute}}); len(got) != 2 {
		t.Errorf("got %+v, want those of no service that ended half an hour before the onset or later", got)
	}
	if got := x.SuspectChange(all[2:3]); got != nil {
		t.Errorf("got %+v, want none of the first suspect", got)
	}
}
