package scratch

import (
	"slices"
	"testing"
)

func TestFilled(t *testing.T) {
	memory := []int{1, 2, 3, 4}
	s := Filled(memory[:1], 3, 7)
	if want := []int{7, 7, 7}; !slices.Equal(s, want) || &s[0] != &memory[0] {
		t.Errorf("Filled() = %v, want %v in the same memory", s, want)
	}
	if s := Filled(memory, 6, 0); !slices.Equal(s, make([]int, 6)) || memory[0] != 7 {
		t.Errorf("Filled() = %v, want six zeros in other memory", s)
	}
}
