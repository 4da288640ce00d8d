package control_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/control"
)

// A plane refuses agents beyond its limit, and still serves those it knows.
func TestMaxAgents(t *testing.T) {
	p := control.New(&recorder{}, control.Options{Lease: 90 * time.Second, MaxAgents: 2, Log: slog.New(slog.DiscardHandler)})
	p.Begin(nil)
	list := points("shop", 1)
	register := func(id string) error {
		_, err := p.Register(control.Caller{ID: id}, registration("shop", "1", list, 0))
		return err
	}
	for _, step := range []struct {
		id   string
		want error
	}{{"a", nil}, {"b", nil}, {"c", control.ErrFull}, {"a", nil}, {"b", nil}} {
		if err := register(step.id); !errors.Is(err, step.want) {
			t.Errorf("agent %s: error %v, want %v", step.id, err, step.want)
		}
	}
}

// Of the resource of an agent, the plane keeps the attributes that identify it, up to a limit.
func TestShownAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		list := points("shop", 1)
		r := registration("shop", "1", list, 0)
		r.Resource["k8s.pod.name"], r.Resource["process.command_line"] = "shop-7", "--password=secret"
		w.call("PUT", "a", r)
		want := []string{"k8s.pod.name", "service.name"}
		if got := slices.Sorted(maps.Keys(w.plane.Agents()[0].Resource)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for i := range 60 {
			r.Resource[fmt.Sprintf("service.x%02d", i)] = "y"
		}
		w.call("PUT", "a", r)
		if n := len(w.plane.Agents()[0].Resource); n != 24 {
			t.Errorf("%d attributes, want 24", n)
		}
	})
}

// The summary counts agents by state.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 1))
		w.register("b", "1", "shop", points("shop", 1))
		w.on("shop/000000")
		w.fetch("a", "", "")
		w.report("a")
		s := w.plane.Summary()
		if s.Agents != 2 || s.Current != 1 || s.Behind != 1 || s.Lost != 0 {
			t.Errorf("%+v, want two agents, one of them current and one behind", s)
		}
	})
}
