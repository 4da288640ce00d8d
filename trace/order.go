package trace

// CompareBools compares as [cmp.Compare] does, which takes no booleans: false comes before true.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
