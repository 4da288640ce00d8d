package search

// binary picks up to three candidates: one that halves the first region with candidates, and one for each half.
func binary(q *Question) []Pick {
	for r := range q.Regions {
		list := q.Within(r)
		if len(list) == 0 {
			continue
		}
		s := newSplitter(q, list, func(int) float64 { return 1 })
		var picks []Pick
		for range 3 {
			if i := s.next(); i >= 0 {
				picks = append(picks, q.Pick(i, q.Regions[r].Share, "halves the remaining candidates"))
			}
		}
		return picks
	}
	return nil
}
