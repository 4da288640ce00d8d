package critpath

import (
	"math/bits"
	"slices"
	"testing"
)

// Every flag has a name of its own.
func TestFlagNames(t *testing.T) {
	names := (FlagTooLong<<1 - 1).Names()
	if len(names) != len(flagNames) || FlagTooLong != 1<<(len(flagNames)-1) {
		t.Errorf("%d names for %d flags", len(flagNames), bits.Len(uint(FlagTooLong)))
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(flagNames) {
		t.Errorf("duplicate names: %v", names)
	}
}
