package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListTrees implements contract.StrictServerInterface.
func (a *API) ListTrees(ctx context.Context, r contract.ListTreesRequestObject) (contract.ListTreesResponseObject, error) {
	var s *snapshot
	var trees []contract.TreeSummary
	order := newHashList()
	err := a.ask(ctx, func(c *engine.View) {
		s = a.refresh(c)
		for i := range s.groups {
			id := s.groups[i].id
			if s.groups[i].level != group.LevelRequestType {
				continue
			}
			t, some := c.Trees.Built(id)
			if !some {
				continue
			}
			x := contract.TreeSummary{RequestType: id.String(), RequestTypeName: s.types[id]}
			if t != nil { // nil: not built yet; a list does not build trees
				x.Version, x.Nodes, x.Tracepoints = fmt.Sprintf("%016x", t.Version), len(t.Nodes), t.Tracepoints
				x.Requests, x.Dropped = int64(t.Requests), int64(t.Dropped)
			}
			order.entries = append(order.entries, entry[analysis.Hash]{-float64(s.groups[i].count), id, int32(len(trees))})
			trees = append(trees, x)
		}
	})
	if err != nil {
		return nil, err
	}
	order.sort()
	keep := func(i int32) bool { return matches(trees[i].RequestTypeName, r.Params.Q) }
	items, next, err := order.page(pageOf(r.Params.Limit, r.Params.Cursor, "trees"), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListTrees200JSONResponse{Items: make([]contract.TreeSummary, 0, len(items)), NextCursor: next, Epoch: s.epoch()}
	for _, i := range items {
		list.Items = append(list.Items, trees[i])
	}
	return list, nil
}

// GetTree implements contract.StrictServerInterface.
func (a *API) GetTree(ctx context.Context, r contract.GetTreeRequestObject) (contract.GetTreeResponseObject, error) {
	q := &r.Params
	requestType, err := analysis.ParseHash(r.RequestType)
	if err != nil {
		return nil, notFound("request type")
	}
	p := pageOf(q.Limit, q.Cursor, "tree "+r.RequestType)
	from, err := p.index()
	if err != nil {
		return nil, err
	}
	var d *contract.GetTree200JSONResponse
	err = a.ask(ctx, func(c *engine.View) {
		t := c.Trees.Of(requestType)
		if t == nil {
			return
		}
		s := a.refresh(c)
		names := renderer{s.names(c), c}
		states := newStates(c)
		d = &contract.GetTree200JSONResponse{
			RequestType: r.RequestType, RequestTypeName: s.types[requestType], Version: fmt.Sprintf("%016x", t.Version), Nodes: len(t.Nodes),
			Items: []contract.TreeNode{}, Matches: names.matches(c, t, requestType, q.Problem),
		}
		for i := from; i < len(t.Nodes); i++ {
			n := &t.Nodes[i]
			state := states.of(n.Tracepoint)
			if q.State != nil && *q.State != state || q.Q != nil && !matches(names.nodeText(n), q.Q) {
				continue
			}
			if len(d.Items) == p.limit {
				d.NextCursor = new(p.at(i))
				return
			}
			d.Items = append(d.Items, names.node(t, i, state))
		}
	})
	if err == nil && d == nil {
		err = notFound("tree")
	}
	return d, err
}

// index returns the index at which the page begins, for lists in a fixed order.
func (p page) index() (int, error) {
	if p.cursor == nil || *p.cursor == "" {
		return 0, nil
	}
	c, err := parseCursor(*p.cursor, p.sort)
	if err != nil {
		return 0, err
	}
	i, err := strconv.Atoi(c.ID)
	if err != nil || i < 0 {
		return 0, errCursor
	}
	return i, nil
}

// at returns the cursor that [page.index] reads.
func (p page) at(i int) string { return cursor{Sort: p.sort, ID: strconv.Itoa(i)}.String() }

func (r renderer) nodeText(n *cct.Node) string {
	return r.nodeName(n) + " " + r.Table.Text(n.Service) + " " + r.tracepoint(n.Tracepoint)
}

// nodeName returns the operation of a node or, for a variable, the name of its tracepoint.
func (r renderer) nodeName(n *cct.Node) string {
	if n.Kind == cct.VariablePoint {
		return r.tracepoint(n.Tracepoint)
	}
	return r.OpName(n.Op)
}

func (r renderer) node(t *cct.Tree, i int, state contract.TracepointState) contract.TreeNode {
	n := &t.Nodes[i]
	return contract.TreeNode{
		Index: i, Parent: int(n.Parent), End: int(n.End), Depth: int(n.Depth), Context: hex16(n.Context), Service: r.Table.Text(n.Service),
		Operation: r.nodeName(n), Layer: contract.TreeNodeLayer(n.Layer.String()), Kind: contract.TreeNodeKind(n.Kind.String()),
		Tracepoint: hex16(n.Tracepoint), TracepointName: r.tracepoint(n.Tracepoint), State: state, HitsPerRequest: number(n.HitRate()),
		BytesPerHit: int(n.Bytes), CostNs: n.Cost.Nanoseconds(), Requests: int64(n.Requests), Errors: int64(n.Errors), Unanswered: int64(n.Unanswered),
		History: number(n.History.Mean()), HistoryInvestigations: int64(n.History.N), ReferenceNs: number(n.Reference.Mean()), Seen: instant(n.Seen),
	}
}

// matchedEdges limits the edges of a problem that are looked up in a tree, and matchedNodes the nodes shown of each.
const (
	matchedEdges = 5
	matchedNodes = 100
)

// matches returns the nodes of a tree that match the leading edges of a problem: the given one or, if problem is nil,
// the first of the request type.
func (r renderer) matches(c *engine.View, t *cct.Tree, requestType analysis.Hash, problem *string) []contract.Match {
	all := []contract.Match{}
	problems := c.Problems.Open()
	at := slices.IndexFunc(problems, func(p detect.Problem) bool {
		return p.RequestType == requestType && (problem == nil || p.ID.String() == *problem)
	})
	if at < 0 {
		return all
	}
	p := &problems[at]
	for i := range p.Edges {
		e := &p.Edges[i]
		if len(all) == matchedEdges {
			break
		}
		if e.Edge == 0 {
			continue
		}
		m := t.MatchContext(e.Context)
		if len(m.Nodes) == 0 {
			m = t.Match(r.Table.Path(e.Context), nil)
		}
		place := r.Place(e)
		x := contract.Match{
			Problem: p.ID.String(), Place: contractPlace(&place), Score: number(e.Score), Nodes: []contract.MatchedNode{}, Distance: m.Distance,
			RunnersUp: []contract.RunnerUp{},
		}
		for k, n := range m.Nodes[:min(len(m.Nodes), matchedNodes)] {
			x.Nodes = append(x.Nodes, contract.MatchedNode{Index: int(n), Weight: number(m.Weights[k])})
		}
		for _, n := range m.RunnersUp {
			x.RunnersUp = append(x.RunnersUp, contract.RunnerUp{Index: int(n.Node), Distance: n.Distance})
		}
		all = append(all, x)
	}
	return all
}

// states returns the states of tracepoints.
type states struct {
	on        map[trace.Symbol]bool
	overrides map[trace.Symbol]*search.Override
}

func newStates(c *engine.View) *states {
	s := &states{make(map[trace.Symbol]bool), make(map[trace.Symbol]*search.Override)}
	for _, l := range c.Searches.Plan().Leases {
		s.on[l.Tracepoint] = true
	}
	for i := range c.Searches.State().Overrides {
		w := &c.Searches.State().Overrides[i]
		s.overrides[w.Tracepoint] = w
	}
	return s
}

func (s *states) of(tp trace.Symbol) contract.TracepointState {
	w := s.overrides[tp]
	switch {
	case tp == 0:
		return contract.TracepointStateBaseline
	case w != nil && w.Kind == search.Forbid:
		return contract.TracepointStateForbidden
	case s.on[tp]:
		return contract.TracepointStateOn
	case w != nil:
		return contract.TracepointStatePending
	}
	return contract.TracepointStateOff
}
