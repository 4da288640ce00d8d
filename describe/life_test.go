package describe_test

import (
	"testing"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Each reason why an incident opens or closes has its own text.
func TestTransition(t *testing.T) {
	table := &trace.Table{}
	n := describe.New(table, describe.Verbatim)
	cart := table.Symbol("cart-v2")
	for want, x := range map[string]incident.Transition{
		"The incident opened.":                           {},
		"The incident opened again.":                     {Why: incident.Returned},
		"It grew, after it had been the same for a day.": {Why: incident.Grew},
		"The incident closed: Ann accepted the behaviour since the onset as normal (cold caches).": {
			State: incident.Accepted, Why: incident.ByPerson, By: "Ann", Text: "cold caches",
		},
		"The incident closed: incident 0000000000000abc has the same cause.": {
			State: incident.Merged, Why: incident.SameCause, Into: 0xabc,
		},
		"It had been the same for a day: Sibyl proposed to accept it as normal.": {
			State: incident.Steady, Why: incident.Unchanged,
		},
		"The incident closed: back to normal, seen in 53 calls.": {
			State: incident.Closed, Why: incident.Recovered, Calls: 53,
		},
		"The incident closed: back to normal.": {State: incident.Closed, Why: incident.Recovered},
		"The incident closed: its requests stopped, so nobody knows whether its cause is gone.": {
			State: incident.Closed, Why: incident.Stopped,
		},
		"The incident closed: no traces arrived, so nobody knows whether its cause is gone.": {
			State: incident.Closed, Why: incident.NoTraces,
		},
		"The incident closed: its requests go to cart-v2 now.": {
			State: incident.Closed, Why: incident.Moved, Service: cart,
		},
		"The incident closed: incident 0000000000000abc tells what happens to its service now.": {
			State: incident.Closed, Why: incident.Replaced, Into: 0xabc,
		},
	} {
		if got := describe.Transition(n, &x).String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
