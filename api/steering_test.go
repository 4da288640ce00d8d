package api

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// A person ends and starts the search for a problem.
func TestSteering(t *testing.T) {
	w := newTroubled(t)
	path := prefix + "/investigations/" + w.problem().ID.String()
	read := func() (d contract.InvestigationDetail) {
		t.Helper()
		if err := json.Unmarshal(w.get(t, path).Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	w.expect(t, http.StatusOK, http.MethodPut, path, map[string]string{"kind": "end", "reason": "known"})
	w.epoch(t)
	d := read()
	if v := d.Investigation; v.State != "gone" || v.Steering == nil || v.Steering.Kind != contract.SteeringKindEnd ||
		v.Steering.Reason != "known" || len(d.Requested) > 0 {
		t.Errorf("ended: %+v, %d tracepoints requested", v, len(d.Requested))
	}
	w.expect(t, http.StatusOK, http.MethodPut, path, map[string]string{"kind": "start"})
	w.epoch(t)
	v := read().Investigation
	if v.State == "gone" || v.Steering == nil || v.Steering.Kind != contract.SteeringKindStart {
		t.Errorf("started: %+v", v)
	}
	w.expect(t, http.StatusNoContent, http.MethodDelete, path, nil)
	if v := read().Investigation; v.Steering != nil {
		t.Errorf("withdrawn: %+v", v.Steering)
	}
}
