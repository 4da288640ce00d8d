package report

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// names converts the parts of a report to sentences.
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

// profiles returns the profiles of the request types in r, in the order of r. It applies clean to all names.
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
	sorting.SliceStable(order,
		func(i, j int) int { return descending(edges[i].ShareVariance, edges[j].ShareVariance) })
	return order
}

// descending compares a and b so that larger numbers come first and NaN last.
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
