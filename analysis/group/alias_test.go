package group_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// mesh is an application of services that call each other by generic names. Each operation calls two others, in this
// order, with one client span each.
type mesh struct {
	table *trace.Table
	calls [][2]int // by operation
	peer  func(op int) string
}

// trace returns the trace of request n. The spans of service dead are missing.
func (m *mesh) trace(n, dead int) *trace.Trace {
	t := &trace.Trace{ID: trace.ID{0: byte(n >> 16), 1: byte(n >> 8), 2: byte(n), 15: 1}}
	m.span(t, 0, 0, 0, 1<<20, dead)
	return t
}

const perService = 2 // operations

func (m *mesh) span(t *trace.Trace, op int, parent trace.SpanID, start, end trace.Nanos, dead int) {
	service := m.table.Symbol(fmt.Sprintf("s%d", op/perService))
	add := func(name string, kind trace.Kind, parent trace.SpanID, start, end trace.Nanos, peer trace.Op) trace.SpanID {
		id := trace.SpanID(len(t.Spans) + 1)
		t.Spans = append(t.Spans, trace.Span{
			ID:      id,
			Parent:  parent,
			Start:   start,
			End:     end,
			Service: service,
			Kind:    kind,
			Op:      m.table.Op(service, m.table.Symbol(name), kind),
			Peer:    peer,
		})
		return id
	}
	server := add(fmt.Sprintf("GET /op%d", op), trace.Server, parent, start, end, 0)
	third := (end - start) / 3
	for i, callee := range m.calls[op] {
		if callee <= op {
			continue
		}
		peer := m.table.Op(m.table.Symbol(m.peer(callee)), 0, trace.External)
		from, to := start+trace.Nanos(i+1)*third-third/2, start+trace.Nanos(i+1)*third+third/4
		client := add("GET", trace.Client, server, from, to, peer)
		if callee/perService != dead {
			m.span(t, callee, client, from+1, to-1, dead)
		}
	}
	if len(m.calls[op]) > 0 { // otherwise it is a database
		add("SELECT", trace.Client, server, end-3, end-1, m.table.Op(m.table.Symbol("db"), 0, trace.External))
	}
}

func drawMesh(t *rapid.T) *mesh {
	m := &mesh{table: &trace.Table{}}
	for range rapid.IntRange(3, 8).Draw(t, "operations") {
		call := rapid.IntRange(0, 7)
		m.calls = append(m.calls, [2]int{call.Draw(t, "call"), call.Draw(t, "call")})
	}
	for i := range m.calls {
		for k, callee := range m.calls[i] {
			if callee >= len(m.calls) || k == 1 && callee/perService == m.calls[i][0]/perService {
				m.calls[i][k] = 0 // calls from one place to one peer have one callee
			}
		}
	}
	m.peer = func(op int) string { return fmt.Sprintf("s%d.example", op/perService) }
	return m
}

// callContexts returns the contexts of the calls to service, with the number of their calls.
func (m *mesh) callContexts(o *observation.Observation, service string) map[trace.Context]int32 {
	calls := make(map[trace.Context]int32)
	for _, c := range o.Contexts {
		if m.table.OpName(c.Op) == "GET" &&
			(m.table.ServiceName(c.Target) == service || m.table.ServiceName(c.Target) == service+".example") {
			calls[c.Context] += c.Count
		}
	}
	return calls
}

// If a service stops emitting spans, calls to it keep their context and their group's path, and count as unanswered.
func TestCallsKeepTheirContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t)
		types := &group.RequestTypes{}
		g := group.NewGrouper(types, m.table, group.Options{})
		healthy := requests.Observe(m.trace(0, -1))[0]
		for n := range 200 {
			o := healthy.Clone()
			o.Trace[4] = byte(n)
			g.Observe(o)
		}
		g.EndEpoch(1)
		dead := rapid.IntRange(1, 3).Draw(t, "dead")
		service := fmt.Sprintf("s%d", dead)
		want := m.callContexts(healthy, service)
		o := requests.Observe(m.trace(1000, dead))[0]
		g.Observe(o)
		kept, all := 0, 0
		for context, calls := range m.callContexts(o, service) {
			all += int(calls)
			if want[context] > 0 {
				kept += int(calls)
			}
			if c := o.Context(context); want[context] > 0 && c.Unanswered != c.Count {
				t.Errorf("%d of %d calls count as unanswered", c.Unanswered, c.Count)
			}
		}
		if 100*kept < 95*all {
			t.Errorf("%d of %d calls keep their context", kept, all)
		}
		for _, c := range o.Contexts {
			if m.table.OpName(c.Op) == "SELECT" && c.Unanswered > 0 {
				t.Error("calls to a database count as unanswered")
			}
		}
		consistent(t, o)
	})
}

// consistent checks the invariants of o.
func consistent(t *rapid.T, o *observation.Observation) {
	t.Helper()
	sum := int64(0)
	for i, e := range o.Edges {
		sum += e.Nanos
		if o.Context(e.Context) == nil || e.Edge != trace.EdgeOf(e.Context, e.Before, e.After) ||
			i > 0 && e.Edge <= o.Edges[i-1].Edge {
			t.Errorf("edge %+v", e)
		}
	}
	if sum != int64(o.Duration) {
		t.Errorf("edges of %d ns, request of %d ns", sum, o.Duration)
	}
	if !slices.IsSortedFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp1(a.Context, b.Context) }) {
		t.Error("contexts are out of order")
	}
	if o.Shape != o.ComputeShape() {
		t.Error("the shape is old")
	}
}

func cmp1(a, b trace.Context) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// An unanswered leaf call gives the same observation as an answered one.
func TestRetargetEqualsAnswer(t *testing.T) {
	m := &mesh{
		table: &trace.Table{},
		calls: [][2]int{{2, 4}, {0, 0}, {0, 0}, {0, 0}, {0, 0}},
		peer:  func(int) string { return "{ip}" },
	}
	answered := requests.Observe(m.trace(1, -1))[0]
	lost := requests.Observe(m.trace(1, 1))[0]
	target := m.table.Op(m.table.Symbol("s1"), m.table.Symbol("GET /op2"), trace.Server)
	i := slices.IndexFunc(lost.Contexts,
		func(c observation.ContextCount) bool { return c.Unanswered > 0 && m.table.OpName(c.Op) == "GET" })
	if !lost.Retarget(i, target) {
		t.Fatal("not retargeted")
	}
	if diff := cmp.Diff(answered.Children, lost.Children); diff != "" {
		t.Error(diff)
	}
	call := slices.IndexFunc(answered.Contexts, func(c observation.ContextCount) bool { return c.Target == target })
	if c := lost.Context(answered.Contexts[call].Context); c == nil || c.Unanswered != 1 ||
		c.Total != answered.Contexts[call].Total {
		t.Errorf("the call is not in the context of answered ones: %+v", c)
	}
	if lost.Skeleton != lost.Path.Skeleton() {
		t.Error("the skeleton is old")
	}
}

// The aliases do not depend on the order of the requests of an epoch, and are restored.
func TestAliasesAreSaved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t)
		var all []*observation.Observation
		for n := range 60 {
			all = append(all, requests.Observe(m.trace(n, rapid.IntRange(-9, 3).Draw(t, "dead")))...)
		}
		types := &group.RequestTypes{}
		state := func(all []*observation.Observation) []byte {
			g := group.NewGrouper(types, m.table, group.Options{})
			for _, o := range all {
				g.Observe(o.Clone())
			}
			g.EndEpoch(5)
			g.Observe(all[0].Clone())
			return g.AppendBinary(nil, nothing)
		}
		want := state(all)
		shuffled := slices.Clone(all[1:])
		shuffled = append(all[:1:1], rapid.Permutation(shuffled).Draw(t, "order")...)
		if !bytes.Equal(want, state(shuffled)) {
			t.Error("the state depends on the order of requests")
		}
		g, rest, err := group.DecodeGrouper(want, types, m.table, group.Options{},
			func(b []byte, _ *group.Group) ([]byte, error) { return b, nil })
		if err != nil || len(rest) > 0 {
			t.Fatalf("%d bytes are left, error %v", len(rest), err)
		}
		if !bytes.Equal(want, g.AppendBinary(nil, nothing)) {
			t.Error("the restored state differs")
		}
	})
}

func nothing(b []byte, _ *group.Group) []byte { return b }

// Calls to a third party keep their target, even if some calls of the same operation are answered.
func TestThirdPartiesHaveNoAlias(t *testing.T) {
	table := &trace.Table{}
	var a group.Aliases
	service := table.Symbol("shop")
	get := table.Op(service, table.Symbol("GET"), trace.Client)
	peer := table.Op(table.Symbol("{ip}"), 0, trace.External)
	cart := table.Op(table.Symbol("cart"), table.Symbol("GET /cart"), trace.Server)
	call := func(target trace.Op, calls int32) *observation.Observation {
		c := observation.ContextCount{
			Context: 9,
			Parent:  8,
			Op:      get,
			Target:  target,
			Peer:    peer,
			Count:   calls,
		}
		if target == peer {
			c.Unanswered = calls
		}
		return &observation.Observation{Contexts: []observation.ContextCount{c}}
	}
	a.Learn(call(cart, 40), table)
	a.Learn(call(peer, 50), table)
	a.EndEpoch(1)
	o := call(peer, 1)
	a.Apply(o, table)
	if diff := cmp.Diff(peer, o.Contexts[0].Target); diff != "" || o.Contexts[0].Unanswered != 0 {
		t.Errorf("the call got the target of others: %+v", o.Contexts[0])
	}
	a.Learn(call(cart, 40), table)
	a.EndEpoch(2)
	o = call(peer, 1)
	a.Apply(o, table)
	want := observation.ContextCount{
		Parent:     8,
		Op:         get,
		Target:     cart,
		Peer:       peer,
		Count:      1,
		Unanswered: 1,
	}
	if diff := cmp.Diff(want, o.Contexts[0], cmpopts.IgnoreFields(observation.ContextCount{}, "Context")); diff != "" {
		t.Error(diff)
	}
	for range 10 { // an outage does not undo the alias
		a.Learn(call(peer, 1000), table)
		a.EndEpoch(3)
	}
	o = call(peer, 1)
	if a.Apply(o, table); o.Contexts[0].Target != cart {
		t.Error("the alias was lost during an outage")
	}
}

// External targets that are no longer called make room for others within two days. Targets that are called stay.
func TestExternalTargetsAge(t *testing.T) {
	m := &mesh{table: &trace.Table{}, calls: [][2]int{{2, 0}, {0, 0}, {0, 0}}}
	types := &group.RequestTypes{}
	g := group.NewGrouper(types, m.table, group.Options{})
	call := func(host string) (kept bool) {
		m.peer = func(int) string { return host }
		o := requests.Observe(m.trace(1, 1))[0]
		g.Observe(o)
		return slices.ContainsFunc(o.Contexts,
			func(c observation.ContextCount) bool { return m.table.OpName(c.Op) == "GET" && c.Target != 0 })
	}
	count := func(name string) (kept int) {
		for n := range 200 {
			if call(fmt.Sprint(name, n)) {
				kept++
			}
		}
		return kept
	}
	now := trace.Nanos(time.Hour)
	g.EndEpoch(now)
	count("old")
	if n := count("old"); n != 64 {
		t.Errorf("%d targets of an operation, want 64", n)
	}
	steady := ""
	for n := range 200 {
		if host := fmt.Sprint("old", n); steady == "" && call(host) {
			steady = host
		}
	}
	for range 3 {
		g.EndEpoch(now)
		now = now.Add(24 * time.Hour)
		if !call(steady) {
			t.Error("a target that is called every day was forgotten")
		}
		state := g.AppendBinary(nil, nothing)
		var err error
		g, _, err = group.DecodeGrouper(state, types, m.table, group.Options{},
			func(b []byte, _ *group.Group) ([]byte, error) { return b, nil })
		if err != nil || !bytes.Equal(state, g.AppendBinary(nil, nothing)) {
			t.Fatalf("the restored state differs, error %v", err)
		}
	}
	count("new")
	if n := count("new"); n < 60 {
		t.Errorf("%d targets instead of those that are not called any more, want 63 or 64", n)
	}
}

// An operation has a bounded number of external targets. Calls to further ones have no target and are counted.
func TestExternalTargetsAreBounded(t *testing.T) {
	m := &mesh{table: &trace.Table{}, calls: [][2]int{{2, 0}, {0, 0}, {0, 0}}}
	types := &group.RequestTypes{}
	g := group.NewGrouper(types, m.table, group.Options{})
	targets := make(map[trace.Op]bool)
	for n := range 500 {
		m.peer = func(int) string { return fmt.Sprintf("host%d", n) }
		o := requests.Observe(m.trace(n, 1))[0]
		g.Observe(o)
		for _, c := range o.Contexts {
			if m.table.OpName(c.Op) == "GET" && c.Target != 0 {
				targets[c.Target] = true
			}
		}
	}
	if g.Bare == 0 || len(targets)+int(g.Bare) != 500 {
		t.Errorf("%d targets, %d calls without target, want 500 together", len(targets), g.Bare)
	}
	again := 0
	for n := range 500 {
		m.peer = func(int) string { return fmt.Sprintf("host%d", n) }
		o := requests.Observe(m.trace(n, 1))[0]
		g.Observe(o)
		if slices.ContainsFunc(o.Contexts,
			func(c observation.ContextCount) bool { return m.table.OpName(c.Op) == "GET" && c.Target != 0 }) {
			again++
		}
	}
	if again != 64 {
		t.Errorf("%d targets, want 64", again)
	}
	state := g.AppendBinary(nil, nothing)
	restored, _, err := group.DecodeGrouper(state, types, m.table, group.Options{},
		func(b []byte, _ *group.Group) ([]byte, error) { return b, nil })
	if err != nil || restored.Bare != g.Bare || !bytes.Equal(state, restored.AppendBinary(nil, nothing)) {
		t.Errorf("the restored state differs, error %v", err)
	}
}
