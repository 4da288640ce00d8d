package group

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
)

// ruledGroups returns the groups of requests under rules, as text with their number of requests.
func ruledGroups(w *requests.Builder, rules Rules) map[string]int {
	types := &RequestTypes{Rules: NewRuleSet(rules, w.Table)}
	types.Freeze()
	g := NewGrouper(types, w.Table, Options{})
	for _, o := range w.Requests {
		g.Observe(o)
	}
	g.EndEpoch(0)
	all := make(map[string]int)
	for _, group := range g.Groups() {
		s := g.Summarize(group)
		line := fmt.Sprintf("%s %d %s", s.Level, s.Count, s.Name)
		for _, b := range s.Bins {
			line += fmt.Sprintf(" %s=%s at %s", b.Variable, b.Value, w.Table.OpName(w.Table.Context(b.Where).Op))
		}
		all[line]++
	}
	return all
}

// Rules name request types, merge groups and divide them.
func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		want  map[string]int
	}{
		"none": {Rules{}, map[string]int{"request_type 240 ": 1, "group 160 ": 1, "group 80 ": 1}},
		"merge": {
			Rules{Types: []TypeRule{{Entry: "shop GET", Merge: true}}},
			map[string]int{"request_type 240 ": 1, "group 240 ": 1},
		},
		"another entry": {
			Rules{Types: []TypeRule{{Entry: "shop PUT", Merge: true}}},
			map[string]int{"request_type 240 ": 1, "group 160 ": 1, "group 80 ": 1},
		},
		"finer": {
			Rules{GroupBy: []string{"tier"}, Types: []TypeRule{{Entry: "shop GET", Merge: true}}},
			map[string]int{"request_type 240 ": 1, "group 120  tier=free at GET": 1, "group 120  tier=team at GET": 1},
		},
		"named by an attribute": {
			Rules{Types: []TypeRule{{Attribute: "tier", Value: "team", Name: "teams", Merge: true}}},
			map[string]int{
				"request_type 120 ": 1, "group 80 ": 1, "group 40 ": 1,
				"request_type 120 teams": 1, "group 120 teams": 1,
			},
		},
		"the first that matches holds": {
			Rules{Types: []TypeRule{{Entry: "shop GET", Name: "all", Merge: true}, {Attribute: "tier", Name: "tiers"}}},
			map[string]int{"request_type 240 all": 1, "group 240 all": 1},
		},
	} {
		got := ruledGroups(requests.Shop(), c.rules)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
	}
}

func TestRulesCheck(t *testing.T) {
	for _, bad := range []TypeRule{{}, {Name: "x"}, {Attribute: "tier"}, {Entry: "shop GET", Value: "x"}} {
		if r := (&Rules{Types: []TypeRule{bad}}); r.Check() == nil {
			t.Errorf("no error for %+v", bad)
		}
	}
	if err := (&Rules{Types: []TypeRule{{Entry: "shop GET"}, {Attribute: "tier", Name: "x"}}}).Check(); err != nil {
		t.Error(err)
	}
}
