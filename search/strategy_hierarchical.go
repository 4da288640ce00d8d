package search

// Hierarchical picks the direct children of the location with the largest own share. If that location has no children
// to pick, it tries the next locations that have at least half of its share.
func Hierarchical(q *Question) []Pick {
	var picks []Pick
	for r := range q.Regions {
		if r > 0 && q.Regions[r].Share < q.Regions[0].Share/2 {
			break
		}
		for _, i := range q.Within(r) {
			if c := &q.Candidates[i]; c.Depth == 1 {
				picks = append(picks, q.Pick(i, q.Regions[r].Share, "child of the location with the largest share"))
			}
		}
		if len(picks) > 0 {
			break
		}
	}
	return picks
}
