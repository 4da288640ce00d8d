package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// rollouts is a core that learned while version 1 of a service was there.
type rollouts struct {
	*world
	t testing.TB
}

func newRollouts(t testing.TB, config engine.Options) *rollouts {
	t.Helper()
	config.Learning = 20 * time.Second
	r := &rollouts{newWorld(small(3, sim.None), config), t}
	r.run("shop", "1")
	for !r.core.Learned() {
		r.play()
	}
	return r
}

// run has spans of versions of a service arrive now.
func (r *rollouts) run(service string, versions ...string) {
	var seen []engine.VersionSeen
	for _, v := range versions {
		seen = append(seen, r.seen(r.now, service, v))
	}
	r.core.ObserveVersions(seen)
}

func (r *rollouts) seen(at trace.Nanos, service, version string) engine.VersionSeen {
	x := ingest.ServiceVersion{Service: r.core.Table().Symbol(service), Version: r.core.Table().Symbol(version)}
	return engine.VersionSeen{ServiceVersion: x, First: at, Last: at}
}

// said returns the deploys in words.
func (r *rollouts) said() string {
	var all []string
	for _, d := range r.core.Deploys() {
		text := r.core.Table().Text
		all = append(all, fmt.Sprintf("%s %s after %s at %v", text(d.Service), text(d.Version), text(d.Before), d.At.Sub(start)))
	}
	return strings.Join(all, "; ")
}

// A version is deployed when it is new to a service that had another one, once, while the old one goes on, and not while the core learns.
func TestDeploys(t *testing.T) {
	options := engine.DefaultOptions()
	r := newRollouts(t, options)
	r.run("shop", "1")
	r.run("bank", "7") // the first that is known of it
	if got := r.said(); got != "" {
		t.Errorf("before anything was deployed: %s", got)
	}
	r.play()
	r.run("shop", "1", "2")
	r.core = r.again(t, options)
	r.run("shop", "1", "2")
	r.play()
	r.run("shop", "1", "2", "3")
	r.run("bank", "8")
	if got, want := r.said(), "shop 2 after 1 at 30s; shop 3 after 2 at 40s; bank 8 after 7 at 40s"; got != want {
		t.Errorf("deployed: %s, want %s", got, want)
	}
}

// However many versions come, the core keeps few, and those that are there now; how often it is told of them does not matter.
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
			if n := r.core.Versions(); n <= 4096 || n > 8192 {
				t.Errorf("%d versions are known before the epoch ends", n)
			}
			if r.play(); r.core.Versions() != 4096 {
				t.Errorf("%d versions are known when it has ended", r.core.Versions())
			}
		}
		if n := len(r.core.Deploys()); n != 1000 {
			t.Errorf("%d deploys", n)
		}
		r.run("shop", "1", "2")
		d := r.core.Deploys()[999]
		if d.Service != trace.SymbolOf([]byte("shop")) || d.Version != trace.SymbolOf([]byte("2")) || d.Before != trace.SymbolOf([]byte("1")) {
			t.Errorf("deployed last: %+v", d)
		}
		states = append(states, string(r.core.AppendState(nil)))
	}
	if states[0] != states[1] {
		t.Error("the states differ")
	}
}
