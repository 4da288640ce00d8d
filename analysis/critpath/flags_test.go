package critpath

import (
	"slices"
	"testing"
)

// TestFlagNames: every flag has a name, and no two the same.
func TestFlagNames(t *testing.T) {
	names := (FlagTooLong<<1 - 1).Names()
	if len(names) != len(flagNames) || FlagTooLong != 1<<(len(flagNames)-1) {
		t.Errorf("%d names for the flags up to %b", len(flagNames), FlagTooLong)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(flagNames) {
		t.Errorf("names are not distinct: %v", names)
	}
}
