package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// joins resolves the joins of a trace to nodes.
type joins struct {
	latestStart bool // from Options

	all []join  // by waiting node, then in order of preference
	at  []int32 // joins of node i: all[at[i]:at[i+1]]; valid if all is not empty

	found []join // scratch: in the order of the trace
}

// join is a node that another node waits for without being its caller.
type join struct {
	preference
	from, to int32 // from waits for to
}

// resolve fills j.all with the joins of t between baseline spans. It ignores joins by messages, and joins between a
// caller and its child.
func (j *joins) resolve(t *trace.Trace, l *layout, ids *spanIDs) {
	j.all, j.found = j.all[:0], j.found[:0]
	if len(t.Joins) == 0 {
		return
	}
	nodes, nodeOf := l.nodes, l.spanNodes()
	for _, declared := range t.Joins {
		if declared.Message {
			continue
		}
		from, linked := nodeOf[declared.Span], ids.index.find(declared.Linked)
		if from < 0 || linked < 0 {
			continue
		}
		to := nodeOf[linked]
		f, t := &nodes[from], &nodes[to]
		if f.Anchor != from || t.Anchor != to || f.Root < 0 || t.Root < 0 || to == from || t.caller == from {
			continue
		}
		j.found = append(j.found, join{t.preference(), from, to})
	}
	if len(j.found) > 0 {
		j.sort(len(nodes))
	}
}

// sort copies j.found to j.all, grouped by waiting node. nodes is the number of nodes.
func (j *joins) sort(nodes int) {
	j.at = scratch.Filled(j.at, nodes+1, 0)
	for i := range j.found {
		j.at[j.found[i].from]++
	}
	addUp(j.at)
	j.all = scratch.Sized(j.all, len(j.found))
	for i := range j.found { // at[n] moves from the end of node n's part to its start
		f := &j.found[i]
		j.at[f.from]--
		j.all[j.at[f.from]] = *f
	}
	for i := range nodes {
		if part := j.of(int32(i)); len(part) > 1 {
			slices.SortFunc(part, func(a, b join) int { return a.compare(&b.preference, j.latestStart) })
		}
	}
}

// none reports whether there are no joins.
func (j *joins) none() bool { return len(j.all) == 0 }

// of returns the joins of node i, in order of preference. It must not be called if j.none().
func (j *joins) of(i int32) []join { return j.all[j.at[i]:j.at[i+1]] }
