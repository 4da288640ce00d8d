package group_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestRequestTypes runs scripts. A line of learn, "N ENTRY: CHILD CHILD …", learns N requests with this entry and these
// children; type prints the type of requests by the set of children at the centre of its cluster.
func TestRequestTypes(t *testing.T) {
	datadriven.Walk(t, "testdata/requesttype", func(t *testing.T, path string) {
		var types group.RequestTypes
		var names names
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out bytes.Buffer
			for line := range strings.Lines(d.Input) {
				count, o := names.request(t, line)
				switch d.Cmd {
				case "learn":
					for range count {
						types.Learn(o)
					}
				case "type":
					fmt.Fprintf(&out, "%s\n", names.typeOf(&types, o))
				default:
					d.Fatalf(t, "unknown command")
				}
			}
			if d.Cmd == "learn" {
				types.Freeze()
				for _, entry := range names {
					for _, s := range types.Siblings(names.op(entry)) {
						fmt.Fprintf(&out, "%s: %d requests like {%s}, told apart by {%s}\n",
							entry, s.Count, names.text(s.Children), names.text(types.Distinct(s.Entry, s.ID, 2)))
					}
				}
			}
			return out.String()
		})
	})
}

// names numbers operations in the order of their first mention.
type names []string

func (n *names) op(name string) trace.Op {
	i := slices.Index(*n, name)
	if i < 0 {
		i = len(*n)
		*n = append(*n, name)
	}
	return trace.Op(i + 1)
}

func (n *names) text(ops []trace.Op) string {
	var all []string
	for _, op := range ops {
		all = append(all, (*n)[op-1])
	}
	return strings.Join(all, " ")
}

func (n *names) request(t *testing.T, line string) (int, *observation.Observation) {
	words := strings.Fields(strings.Replace(line, ":", " ", 1))
	count := 1
	if c, err := strconv.Atoi(words[0]); err == nil {
		count, words = c, words[1:]
	}
	o := &observation.Observation{Entry: n.op(words[0])}
	for _, w := range words[1:] {
		o.Children = append(o.Children, n.op(w))
	}
	slices.Sort(o.Children)
	return count, o
}

func (n *names) typeOf(types *group.RequestTypes, o *observation.Observation) string {
	id := types.Of(o)
	siblings := types.Siblings(o.Entry)
	for _, s := range siblings {
		if s.ID == id && len(siblings) > 1 {
			return fmt.Sprintf("like {%s}", n.text(s.Children))
		}
	}
	if len(siblings) > 1 {
		return "the rest"
	}
	return "the only one"
}

// drawEntryRequests returns requests of two entries with sets of children from a few operations.
func drawEntryRequests(t *rapid.T) (all []*observation.Observation) {
	for range rapid.IntRange(0, 40).Draw(t, "requests") {
		o := &observation.Observation{Entry: trace.Op(rapid.IntRange(1, 2).Draw(t, "entry"))}
		set := rapid.IntRange(0, 63).Draw(t, "children")
		for i := range 6 {
			if set>>i&1 == 1 {
				o.Children = append(o.Children, trace.Op(10+i))
			}
		}
		all = append(all, o)
	}
	return all
}

func learn(all []*observation.Observation) *group.RequestTypes {
	types := &group.RequestTypes{}
	for _, o := range all {
		types.Learn(o)
	}
	return types
}

// Types depend on the set of requests, not on their order. After Freeze, neither Of nor Learn changes them.
func TestRequestTypesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawEntryRequests(t)
		whole := learn(all)
		shuffled := learn(rapid.Permutation(all).Draw(t, "order"))
		whole.Freeze()
		shuffled.Freeze()
		others := drawEntryRequests(t)
		for _, o := range slices.Concat(others, all) {
			before := whole.Of(o)
			whole.Learn(&observation.Observation{Entry: o.Entry, Children: []trace.Op{99}})
			whole.Freeze()
			if whole.Of(o) != before || shuffled.Of(o) != before {
				t.Errorf("the type of %v depends on order or time", o)
			}
		}
	})
}

// The learned sets don't depend on the order beyond the bounds either.
func TestRequestTypesBounds(t *testing.T) {
	const sets = 10_000
	request := func(i int) *observation.Observation {
		return &observation.Observation{
			Entry:    1,
			Children: []trace.Op{trace.Op(10 + 3*i), trace.Op(11 + 3*i), trace.Op(12 + 3*i)},
		}
	}
	var up, down group.RequestTypes
	for i := range sets {
		up.Learn(request(i))
		down.Learn(request(sets - 1 - i))
	}
	for _, r := range []*group.RequestTypes{&up, &down} {
		r.Freeze()
		if n := len(r.Siblings(1)); n != 64 {
			t.Errorf("%d types, want the bound", n)
		}
	}
	for i := range sets {
		if o := request(i); up.Of(o) != down.Of(o) {
			t.Fatalf("the type of set %d depends on the order", i)
		}
	}
}

// An entry that was not learned is one type, as is every entry before Freeze.
func TestRequestTypeOfUnknownEntry(t *testing.T) {
	var types group.RequestTypes
	a, b := &observation.Observation{Entry: 5, Children: []trace.Op{1}},
		&observation.Observation{Entry: 5, Children: []trace.Op{2}}
	if types.Of(a) != types.Of(b) {
		t.Error("an entry has several types before Freeze")
	}
	types.Freeze()
	types.Learn(a)
	types.Learn(b)
	if types.Of(a) != types.Of(b) {
		t.Error("an unknown entry has several types")
	}
	if types.Of(a) == types.Of(&observation.Observation{Entry: 6}) {
		t.Error("two entries have one type")
	}
}

// If there are too many entry operations, or too many children, the same ones are refined in any order.
func TestRequestTypesAreBounded(t *testing.T) {
	const limit, entries = 2000, 5000 // more than twice the limit
	learn := func(of func(i int) int, n int) *group.RequestTypes {
		r := group.RequestTypes{Limit: limit}
		for i := range n {
			k := of(i)
			r.Learn(&observation.Observation{Entry: trace.Op(k + 1), Children: []trace.Op{1}})
			if k%100 == 0 { // an entry with two purposes
				r.Learn(&observation.Observation{Entry: trace.Op(k + 1), Children: []trace.Op{2, 3, 4}})
			}
		}
		return &r
	}
	upwards := learn(func(i int) int { return i }, entries)
	downwards := learn(func(i int) int { return entries - 1 - i }, entries)
	for _, r := range []*group.RequestTypes{upwards, downwards} {
		r.Freeze()
		for k := 0; k < entries; k += 100 {
			if refined := len(r.Siblings(trace.Op(k+1))) == 2; refined != (k < limit) {
				t.Fatalf("entry %d: refined %v", k, refined)
			}
		}
	}
}

func TestManyChildren(t *testing.T) {
	var many []trace.Op
	for i := range trace.Op(3000) {
		many = append(many, i+1)
	}
	var r group.RequestTypes
	o := &observation.Observation{Entry: 1, Children: many}
	r.Learn(o)
	r.Learn(&observation.Observation{Entry: 1, Children: []trace.Op{5000}})
	r.Freeze()
	types := r.Siblings(1)
	if len(types) != 2 || max(len(types[0].Children), len(types[1].Children)) >= 3000 || r.Truncated != 1 {
		t.Errorf("%d types, %d requests truncated", len(types), r.Truncated)
	}
	if id := r.Of(o); id != types[0].ID && id != types[1].ID {
		t.Errorf("type %v is not among the learned ones", id)
	}
}
