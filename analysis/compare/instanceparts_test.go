package compare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// listed returns the instances of the cart in a window, with their parts in tenths.
func listed(f *tracetest.Fleet, h *history.Sites, w history.Interval) (all []string) {
	c := NewComparer(h).Compare(w, Steady)
	i := slices.IndexFunc(c.Suspects, func(s Suspect) bool { return s.Service == f.Table.Symbol("cart") })
	for _, x := range NewComparer(h).InstanceParts(w, &c, &c.Suspects[i]) {
		all = append(all, fmt.Sprintf("%s=%s %.1f of %d", f.Table.Text(x.Key), f.Table.Text(x.Value), x.Part, x.Of))
	}
	return all
}

// TestInstances plays an hour of health and three minutes of a fault.
func TestInstances(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int
		fault  func(all []tracetest.Instance)
		want   []string
	}{
		{
			"one slow instance", 6, func(all []tracetest.Instance) { all[3].Slower = 4 },
			[]string{"k8s.pod.name=cart-3 1.0 of 6"},
		},
		{
			"one slow instance of twelve", 12, func(all []tracetest.Instance) { all[3].Slower = 4 },
			[]string{"k8s.pod.name=cart-3 0.9 of 12"},
		},
		{
			"errors of one instance", 6, func(all []tracetest.Instance) { all[2].Fails = 0.5 },
			[]string{"k8s.pod.name=cart-2 1.0 of 6"},
		},
		{"a slow version of half the instances", 6, func(all []tracetest.Instance) {
			for i := range 3 {
				all[i] = tracetest.Instance{Version: "2", Slower: 4, Fails: 0}
			}
		}, []string{"service.version=2 1.0 of 2"}},
		{
			"a slow version of one new instance", 6,
			func(all []tracetest.Instance) { all[5] = tracetest.Instance{Version: "2", Slower: 4, Fails: 0} },
			[]string{"service.version=2 1.0 of 2", "k8s.pod.name=cart-5 1.0 of 6"},
		},
		{
			"a slow zone", 6, func(all []tracetest.Instance) { all[0].Slower, all[2].Slower, all[4].Slower = 4, 4, 4 },
			[]string{"cloud.availability_zone=zone-0 1.0 of 2"},
		},
		{"all slow", 6, func(all []tracetest.Instance) {
			for i := range all {
				all[i].Slower = 4
			}
		}, nil},
		{"a new version everywhere", 6, func(all []tracetest.Instance) {
			for i := range all {
				all[i] = tracetest.Instance{Version: "2", Slower: 4, Fails: 0}
			}
		}, nil},
		{"healthy", 6, func([]tracetest.Instance) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := tracetest.NewFleet(3)
			h := history.NewSites(f.Table)
			all := tracetest.Instances(c.number)
			play(h, f, 0, time.Hour, all)
			c.fault(all)
			play(h, f, time.Hour, 63*time.Minute, all)
			w := history.Interval{From: trace.Nanos(time.Hour), To: trace.Nanos(63 * time.Minute)}
			got := listed(f, h, w)
			if c.name == "a slow version of half the instances" || c.name == "a slow zone" {
				got = slices.DeleteFunc(got, func(s string) bool { return s[0] == 'k' || s[0] == 'h' })
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			restored, err := history.DecodeSites(h.AppendBinary(nil), f.Table)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(listed(f, h, w), listed(f, restored, w)); diff != "" {
				t.Errorf("a restart changes the instances (-before +after):\n%s", diff)
			}
		})
	}
}

// TestInstancesByChance slows all instances down in many simulations. At most one simulation lists an instance.
func TestInstancesByChance(t *testing.T) {
	wrong := 0
	for seed := range uint64(40) {
		f := tracetest.NewFleet(3)
		f.Rand = rand.New(rand.NewPCG(seed, 1))
		h := history.NewSites(f.Table)
		all := tracetest.Instances(20)
		play(h, f, 0, 20*time.Minute, all)
		for i := range all {
			all[i].Slower = 3
		}
		play(h, f, 20*time.Minute, 23*time.Minute, all)
		if got := listed(f, h,
			history.Interval{From: trace.Nanos(20 * time.Minute), To: trace.Nanos(23 * time.Minute)}); got != nil {
			t.Log(got)
			wrong++
		}
	}
	if wrong > 1 {
		t.Errorf("instances listed in %d of 40 cases in which all are slow", wrong)
	}
}
