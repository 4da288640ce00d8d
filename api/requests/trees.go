package requests

import (
	"context"
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
)

// ListTrees implements contract.StrictServerInterface.
func (a *Requests) ListTrees(
	ctx context.Context, r contract.ListTreesRequestObject,
) (contract.ListTreesResponseObject, error) {
	var s *epoch.Snapshot
	var trees []contract.TreeSummary
	order := query.NewHashList()
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s = a.reader.Refresh(c)
		for i := range s.Groups {
			id := s.Groups[i].ID
			if s.Groups[i].Level != group.LevelRequestType {
				continue
			}
			t, some := c.Trees.Built(id)
			if !some {
				continue
			}
			x := contract.TreeSummary{RequestType: id.String(), RequestTypeName: s.Types[id]}
			if t != nil { // nil if not built yet; a list doesn't build trees
				x.Version, x.Nodes, x.Tracepoints = fmt.Sprintf("%016x", t.Version), len(t.Nodes), t.Tracepoints
				x.Requests, x.Dropped = int64(t.Requests), int64(t.Dropped)
			}
			order.Add(-float64(s.Groups[i].Count), id, int32(len(trees)))
			trees = append(trees, x)
		}
	})
	if err != nil {
		return nil, err
	}
	order.Sort()
	keep := func(i int32) bool { return query.Matches(trees[i].RequestTypeName, r.Params.Q) }
	items, next, err := order.Page(query.PageOf(r.Params.Limit, r.Params.Cursor, "trees"), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListTrees200JSONResponse{
		Items: make([]contract.TreeSummary, 0, len(items)), NextCursor: next, Epoch: s.Epoch(),
	}
	for _, i := range items {
		list.Items = append(list.Items, trees[i])
	}
	return list, nil
}

// GetTree implements contract.StrictServerInterface.
func (a *Requests) GetTree(
	ctx context.Context, r contract.GetTreeRequestObject,
) (contract.GetTreeResponseObject, error) {
	q := &r.Params
	requestType, err := analysis.ParseHash(r.RequestType)
	if err != nil {
		return nil, query.NotFound("request type")
	}
	p := query.PageOf(q.Limit, q.Cursor, "tree "+r.RequestType)
	from, err := p.Index()
	if err != nil {
		return nil, err
	}
	var d *contract.GetTree200JSONResponse
	err = a.reader.Ask(ctx, func(c *engine.View) {
		t := c.Trees.Of(requestType)
		if t == nil {
			return
		}
		s := a.reader.Refresh(c)
		names := renderer{s.Renderer(c)}
		states := render.NewStates(c)
		d = &contract.GetTree200JSONResponse{
			RequestType:     r.RequestType,
			RequestTypeName: s.Types[requestType],
			Version:         fmt.Sprintf("%016x", t.Version),
			Nodes:           len(t.Nodes),
			Items:           []contract.TreeNode{},
			Matches:         names.matches(c, t, requestType, q.Problem),
		}
		for i := from; i < len(t.Nodes); i++ {
			n := &t.Nodes[i]
			state := states.Of(n.Tracepoint)
			if q.State != nil && *q.State != state || q.Q != nil && !query.Matches(names.nodeText(n), q.Q) {
				continue
			}
			if len(d.Items) == p.Limit {
				d.NextCursor = new(p.At(i))
				return
			}
			d.Items = append(d.Items, names.node(t, i, state))
		}
	})
	if err == nil && d == nil {
		err = query.NotFound("tree")
	}
	return d, err
}

func (r renderer) nodeText(n *cct.Node) string {
	return r.nodeName(n) + " " + r.Table.Text(n.Service) + " " + r.Tracepoint(n.Tracepoint)
}

// nodeName returns the operation of a node or, for a variable, the name of its tracepoint.
func (r renderer) nodeName(n *cct.Node) string {
	if n.Kind == cct.VariablePoint {
		return r.Tracepoint(n.Tracepoint)
	}
	return r.OpName(n.Op)
}

func (r renderer) node(t *cct.Tree, i int, state contract.TracepointState) contract.TreeNode {
	n := &t.Nodes[i]
	return contract.TreeNode{
		Index:                 i,
		Parent:                int(n.Parent),
		End:                   int(n.End),
		Depth:                 int(n.Depth),
		Context:               render.Hex16(n.Context),
		Service:               r.Table.Text(n.Service),
		Operation:             r.nodeName(n),
		Layer:                 contract.TreeNodeLayer(n.Layer.String()),
		Kind:                  contract.TreeNodeKind(n.Kind.String()),
		Tracepoint:            render.Hex16(n.Tracepoint),
		TracepointName:        r.Tracepoint(n.Tracepoint),
		State:                 state,
		HitsPerRequest:        render.Number(n.HitRate()),
		BytesPerHit:           int(n.Bytes),
		CostNs:                n.Cost.Nanoseconds(),
		Requests:              int64(n.Requests),
		Errors:                int64(n.Errors),
		Unanswered:            int64(n.Unanswered),
		History:               render.Number(n.History.Mean()),
		HistoryInvestigations: int64(n.History.N),
		Seen:                  render.Instant(n.Seen),
	}
}

// matchedEdges limits the number of edges of a problem that are looked up in a tree. matchedNodes limits the number of
// nodes shown for each edge.
const (
	matchedEdges = 5
	matchedNodes = 100
)

// matches returns the nodes of a tree that match the leading edges of a problem. problem is the ID of an open problem
// of the request type; nil means the first open problem. The result is empty if there is no such problem.
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
		x := contract.Match{
			Problem:   p.ID.String(),
			Place:     render.Place(new(describe.NewPlace(r.Names, e))),
			Score:     render.Number(e.Score),
			Nodes:     []contract.MatchedNode{},
			Distance:  m.Distance,
			RunnersUp: []contract.RunnerUp{},
		}
		for k, n := range m.Nodes[:min(len(m.Nodes), matchedNodes)] {
			x.Nodes = append(x.Nodes, contract.MatchedNode{Index: int(n), Weight: render.Number(m.Weights[k])})
		}
		for _, n := range m.RunnersUp {
			x.RunnersUp = append(x.RunnersUp, contract.RunnerUp{Index: int(n.Node), Distance: n.Distance})
		}
		all = append(all, x)
	}
	return all
}
