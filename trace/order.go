package trace

// CompareBools orders false before true. It complements [cmp.Compare], which does not accept booleans.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
