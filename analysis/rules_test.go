package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shopRequests are requests of one entry operation, a third with a read of the cache, of two tiers.
func shopRequests() *world {
	w := newWorld()
	for i := range 240 {
		cache := 0.0
		if i%3 == 0 {
			cache = 30 * w.heavy(0.1)
		}
		o := w.request(5*w.heavy(0.1), 10*w.heavy(0.1), cache)
		o.Skeleton = Hash{1, uint64(i % 3 / 2)}
		w.text(o, "tier", []string{"free", "team"}[i%2])
	}
	return w
}

// ruledGroups returns the groups that rules make of requests, as text with their number.
func ruledGroups(w *world, rules Rules) (map[string]int, *Grouper) {
	types := &RequestTypes{Rules: NewRuleSet(rules, w.table)}
	types.Freeze()
	g := NewGrouper(types, w.table, GroupOptions{})
	for _, o := range w.requests {
		g.Observe(o)
	}
	g.Close(0)
	all := make(map[string]int)
	for _, group := range g.Groups() {
		s := g.Summarize(group)
		line := fmt.Sprintf("%s %d %s", s.Level, s.Count, s.Name)
		for _, b := range s.Bins {
			line += fmt.Sprintf(" %s=%s at %s", b.Variable, b.Value, w.table.OpName(w.table.Context(b.Where).Op))
		}
		all[line]++
	}
	return all, g
}

// Rules name request types, merge groups and tell them apart.
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
			map[string]int{"request_type 120 ": 1, "group 80 ": 1, "group 40 ": 1, "request_type 120 teams": 1, "group 120 teams": 1},
		},
		"the first that matches holds": {
			Rules{Types: []TypeRule{{Entry: "shop GET", Name: "all", Merge: true}, {Attribute: "tier", Name: "tiers"}}},
			map[string]int{"request_type 240 all": 1, "group 240 all": 1},
		},
	} {
		got, _ := ruledGroups(shopRequests(), c.rules)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
	}
}

// Rules set objectives and accept levels.
func TestRulesExpect(t *testing.T) {
	for name, c := range map[string]struct {
		rule TypeRule
		want ProblemKind
		none bool
	}{
		"nothing":         {rule: TypeRule{Entry: "shop GET"}, want: KindVariable},
		"objective":       {rule: TypeRule{Entry: "shop GET", Objective: time.Millisecond, Accepted: AcceptedLevel{CoV: 9}}, want: KindSlow},
		"accepted":        {rule: TypeRule{Entry: "shop GET", Accepted: AcceptedLevel{CoV: 9}}, none: true},
		"accepted slow":   {rule: TypeRule{Entry: "shop GET", Objective: time.Millisecond, Accepted: AcceptedLevel{CoV: 9, Mean: time.Second}}, none: true},
		"of another name": {rule: TypeRule{Entry: "shop PUT", Objective: time.Millisecond}, want: KindVariable},
	} {
		_, g := ruledGroups(shopRequests(), Rules{Types: []TypeRule{c.rule}})
		problems := g.Chronic(DefaultThresholds())
		if c.none != (len(problems) == 0) || !c.none && problems[0].Kind != c.want {
			t.Errorf("%s: %d problems, want %v: %+v", name, len(problems), c.want, problems)
		}
	}
}

func TestRulesCheck(t *testing.T) {
	for _, bad := range []TypeRule{{}, {Name: "x"}, {Attribute: "tier"}, {Entry: "shop GET", Value: "x"}} {
		if r := (&Rules{Types: []TypeRule{bad}}); r.Check() == nil {
			t.Errorf("nothing wrong with %+v", bad)
		}
	}
	if err := (&Rules{Types: []TypeRule{{Entry: "shop GET"}, {Attribute: "tier", Name: "x"}}}).Check(); err != nil {
		t.Error(err)
	}
}
