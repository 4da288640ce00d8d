package report

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
)

// names describes the parts of a report in sentences.
type names struct {
	*describe.Names

	files []string // names of the input, for commands
}

func newNames(r *offline.Report, clean func(string) string) *names {
	n := describe.New(r.Table, clean)
	for i := range r.Groups {
		n.Add(&r.Groups[i])
	}
	return &names{Names: n}
}

// profiles returns the profile of every request type in the report, in its order.
func profiles(r *offline.Report, clean func(string) string) []describe.Profile {
	n := newNames(r, clean)
	var all []describe.Profile
	for i := range r.Groups {
		if s := &r.Groups[i]; s.Level == group.LevelRequestType {
			all = append(all, describe.NewProfile(n.Names, s))
		}
	}
	return all
}

// byVariance returns the indices of edges, largest share of the variance first and unknown shares last. The order is
// stable.
func byVariance(edges []group.EdgeShare) []int {
	order := make([]int, len(edges))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return descending(edges[i].ShareVariance, edges[j].ShareVariance) })
	return order
}

// descending compares two numbers so that the larger comes first and NaN last.
func descending(a, b float64) int {
	switch aNaN, bNaN := a != a, b != b; {
	case aNaN && bNaN:
		return 0
	case aNaN:
		return 1
	case bNaN:
		return -1
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}
