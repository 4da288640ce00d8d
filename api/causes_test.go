package api

import (
	"testing"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// The answer for a problem includes the contrasts, recoveries and joint effects that the core found.
func TestCauses(t *testing.T) {
	w := newTroubled(t)
	var d contract.ProblemDetail
	w.play(t, 60, func() bool {
		for _, p := range w.problems() {
			if f := w.core.View().Problems.Findings(p.ID); f != nil && len(f.Recoveries) > 0 {
				d = fetch[contract.ProblemDetail](t, w, prefix+"/problems/"+p.ID.String())
				return true
			}
		}
		return false
	})
	if len(d.WhatIf) == 0 {
		t.Fatal("no recovery")
	}
	for _, x := range d.WhatIf {
		if x.Text == "" || x.Requests == 0 || x.Edge.Label == "" || !(*x.MeanFraction >= 0 && *x.MeanFraction <= 1) {
			t.Errorf("recovery %+v", x)
		}
	}
	for _, x := range d.Contrasts {
		if x.Text == "" || x.Requests == 0 || x.Rest == 0 || x.Duration.Edge != nil {
			t.Errorf("contrast %+v", x)
		}
	}
	if d.Unrelated == nil || d.Common == nil {
		t.Errorf("unrelated %v, common %v, want empty lists", d.Unrelated, d.Common)
	}
}
