package control_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Agents that can sample stacks are asked for them until the first have come, and while the search wants the stacks of
// their service. Frames without a tracepoint of the catalogue belong to their callers, and recursion counts once.
func TestStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		all := points("shop", 2)
		r := registration("shop", "1", all, 0)
		w.call(http.MethodPut, "old", r)
		r.Capabilities = append(r.Capabilities, protocol.CanStacks)
		w.call(http.MethodPut, "new", r)
		w.call(http.MethodPut, "silent", r)
		send := func(id string, stacks ...protocol.Stacks) (seconds, code int) {
			a := w.call(http.MethodPost, id+"/status", protocol.Status{Protocol: 1, Session: "1", Stacks: stacks})
			var answer protocol.StatusAnswer
			if a.Body.Len() > 0 {
				if err := json.Unmarshal(a.Body.Bytes(), &answer); err != nil {
					t.Fatal(err)
				}
			}
			return answer.StackSeconds, a.Code
		}
		expect := func(when string, wantSeconds, wantCode, seconds, code int) {
			t.Helper()
			if seconds != wantSeconds || code != wantCode {
				t.Errorf("%s: %d s, %d; want %d s, %d", when, seconds, code, wantSeconds, wantCode)
			}
		}
		seconds, code := send("old")
		expect("an agent that can't", 0, http.StatusNoContent, seconds, code)
		for range 20 {
			seconds, code = send("silent")
			expect("an agent that reports no stacks", 15, http.StatusOK, seconds, code)
		}
		seconds, code = send("silent")
		expect("an agent that still reports no stacks", 0, http.StatusOK, seconds, code)
		seconds, code = send("new")
		expect("a new agent", 15, http.StatusOK, seconds, code)
		seconds, code = send("new", protocol.Stacks{
			Operation: "GET /", SpanKind: protocol.Server, Requests: 3,
			Frames: []protocol.Frame{
				{Nanos: 5},
				{ID: all[0].ID, Caller: 0, Nanos: 10},
				{ID: "shop/unknown", Caller: 1, Nanos: 20},
				{ID: all[1].ID, Caller: 2, Nanos: 40},
				{ID: all[0].ID, Caller: 3, Nanos: 80},
			},
		})
		expect("after its first stacks", 0, http.StatusOK, seconds, code)
		w.plane.WantStacks([]string{"bank", "shop"})
		seconds, code = send("new")
		expect("while a search wants them", 15, http.StatusOK, seconds, code)
		time.Sleep(10 * time.Second)
		var got []search.Stacks
		for _, f := range w.engine.reports() {
			got = append(got, f.Stacks...)
		}
		want := []search.Stacks{{
			Service: "shop", Operation: "GET /", Kind: trace.Server, Requests: 3, Time: 155,
			Tracepoints: []search.StackTime{
				{ID: all[0].ID, Total: 150, Own: 110}, {ID: all[1].ID, Total: 120, Own: 40},
			},
		}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		bad := protocol.Stacks{Operation: "GET /", Requests: 1, Frames: []protocol.Frame{{}, {Caller: 1}}}
		seconds, code = send("new", bad)
		expect("a frame that calls itself", 0, http.StatusUnprocessableEntity, seconds, code)
	})
}
