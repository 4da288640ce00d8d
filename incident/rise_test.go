package incident

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
)

// If the typical times of an operation double while its mean stays within the variation of the history, the excess is
// half of a call.
func TestShowRise(t *testing.T) {
	of := []compare.SuspectOperation{{Op: 1, Score: 0.02, Calls: 30, Usual: 5e6, Rise: 1, Risen: 2.5e6}}
	s := compare.Suspect{Service: 1, Operations: of}
	showRise(&s)
	want := compare.Suspect{Service: 1, Score: 0.02, Own: 0.02, Operations: []compare.SuspectOperation{
		{Op: 1, Score: 0.02, Calls: 30, Usual: 2.5e6, Excess: 2.5e6, Rise: 1, Risen: 2.5e6},
	}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if of[0].Excess != 0 {
		t.Error("the operations of the comparison were changed")
	}
}
